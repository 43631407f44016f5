//! The hook that jemalloc calls for each sampled allocation.

use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;
use tikv_jemalloc_ctl::{Result, raw};

/// jemalloc's name for the hook.
const HOOK: &[u8] = b"experimental.hooks.prof_sample\0";

/// Called with the return addresses of the stack, the innermost first, and the bytes of the allocation.
type OnSample = fn(&[usize], usize);
/// The type of the hook in jemalloc: the allocation, the bytes that were asked for, the stack, its length, and the bytes that
/// were allocated.
type Hook = unsafe extern "C" fn(*const c_void, usize, *mut *mut c_void, c_uint, usize);

static ON_SAMPLE: OnceLock<OnSample> = OnceLock::new();

/// Calls `call` for each sampled allocation of the process, on the thread that allocates. `call` may allocate, but must not
/// wait for a lock, because the thread may hold any. Only the function of the first call is used.
///
/// # Errors
/// Fails if jemalloc is not the allocator, or was started without sampling (`prof:false`).
pub fn on_sample(call: OnSample) -> Result<()> {
    ON_SAMPLE.get_or_init(|| call);
    let hook: Hook = sampled;
    // SAFETY: the value under this name is a pointer to a function of type `Hook`.
    unsafe { raw::write(HOOK, hook) }
}

unsafe extern "C" fn sampled(
    _: *const c_void,
    _: usize,
    stack: *mut *mut c_void,
    length: c_uint,
    bytes: usize,
) {
    let Some(call) = ON_SAMPLE.get().filter(|_| !stack.is_null()) else { return };
    // SAFETY: jemalloc calls this hook with a stack of `length` addresses, which lives until the hook returns.
    call(unsafe { std::slice::from_raw_parts(stack.cast::<usize>(), length as usize) }, bytes);
}
