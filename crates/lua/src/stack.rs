//! [`Values`]: the arguments of a call, read in place on Lua's stack.

use crate::plain::Plain;
use mlua::Lua;
use mlua::ffi::{self, lua_CFunction, lua_State};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::slice;

/// Reads the value at `index`. `None` for a table, a function and other values.
///
/// # Safety
/// `state` must be the state of the running C function, `index` an index of its stack or of an upvalue. The value
/// must stay there for as long as `'v`.
#[inline]
pub(crate) unsafe fn plain<'v>(state: *mut lua_State, index: c_int) -> Option<Plain<'v>> {
    // SAFETY: the caller guarantees that the value exists. Lua's functions that read a value raise no error, with one
    // exception: `lua_tolstring` converts a number to a string, for which memory may be missing. This function calls
    // `lua_tolstring` for strings only.
    let kind = unsafe { ffi::lua_type(state, index) };
    Some(match kind {
        ffi::LUA_TNIL => Plain::Nil,
        // SAFETY: the value exists.
        ffi::LUA_TBOOLEAN => Plain::Bool(unsafe { ffi::lua_toboolean(state, index) } != 0),
        // SAFETY: the value exists.
        ffi::LUA_TNUMBER => Plain::Number(unsafe { ffi::lua_tonumber(state, index) }),
        ffi::LUA_TSTRING => {
            let mut len = 0;
            // SAFETY: the value exists and is a string.
            let bytes = unsafe { ffi::lua_tolstring(state, index, &raw mut len) };
            // SAFETY: a string is `len` bytes that do not move and do not change while the stack has the string. The
            // pointer is not null, because the value is a string.
            Plain::Text(unsafe { slice::from_raw_parts(bytes.cast(), len) })
        }
        _ => return None,
    })
}

/// Pushes `text` as a string. Raises an error of Lua when memory is missing.
///
/// # Safety
/// `state` must be the state of the running C function with a free slot. No frame above Lua's last protected call
/// may have a value with a destructor.
#[inline]
pub(crate) unsafe fn push_text(state: *mut lua_State, text: &[u8]) {
    // SAFETY: the caller guarantees a free slot. Lua copies the bytes. The pointer of an empty slice is not null.
    unsafe { ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len()) }
}

/// The arguments of a call.
#[derive(Debug)]
pub struct Values<'v> {
    state: *mut lua_State,
    len: c_int,
    on_stack: PhantomData<&'v [u8]>,
}

impl<'v> Values<'v> {
    /// # Safety
    /// `state` must be the state of the running C function, whose stack must have `len` values. The values must stay
    /// there for as long as `'v`.
    pub(crate) unsafe fn new(state: *mut lua_State, len: c_int) -> Values<'v> {
        Values { state, len, on_stack: PhantomData }
    }
    /// Number of arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// True when there are no arguments.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The length of the table that is argument `n`. The first argument has number 1. 0 if the argument is no table.
    #[inline]
    pub fn table_len(&self, n: c_int) -> usize {
        // SAFETY: the promise to `Values::new`. Lua takes any index above the top for a missing value.
        if unsafe { ffi::lua_type(self.state, n) } != ffi::LUA_TTABLE {
            return 0;
        }
        // SAFETY: the argument is a table, whose length Lua reads without an error.
        unsafe { ffi::lua_objlen(self.state, n) }
    }
    /// Argument `n` as Lua's C functions read a number. The first argument has number 1. `None`: a missing argument, or one
    /// that Lua does not convert to a number.
    pub fn c_number(&self, n: c_int) -> Option<f64> {
        // SAFETY: the promise to `Values::new`. Lua takes any index above the top for a missing value, and the
        // conversion neither changes the value nor raises an error.
        if unsafe { ffi::lua_isnumber(self.state, n) } == 0 {
            return None;
        }
        // SAFETY: as above.
        Some(unsafe { ffi::lua_tonumber(self.state, n) })
    }
    /// The arguments in order. `None` stands for one that is not plain.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Option<Plain<'v>>> + use<'_, 'v> {
        // SAFETY: the promise to `Values::new`: the first argument has index 1.
        (1..=self.len).map(|index| unsafe { plain(self.state, index) })
    }
}

/// Makes a closure of `function` with these upvalues.
pub(crate) fn closure<const N: usize>(
    lua: &Lua,
    function: lua_CFunction,
    upvalues: [mlua::Value; N],
) -> mlua::Result<mlua::Function> {
    let upvalues = mlua::Variadic::from_iter(upvalues);
    let make = |state| {
        // SAFETY: mlua calls this in a protected call, with the upvalues on the stack. The frame has only numbers.
        unsafe { ffi::lua_pushcclosure(state, function, N as c_int) }
    };
    // SAFETY: `make` leaves the stack with its one result, and needs no destructor when it ends early.
    unsafe { lua.exec_raw(upvalues, make) }
}
