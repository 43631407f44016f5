//! [`Interrupts`]: Ctrl-C that ends only the current work, such as MONITOR at the prompt or a walk over all keys.

use signal_hook::consts::SIGINT;
use signal_hook::flag::{register, register_conditional_default};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Maximum time between Ctrl-C and the end of work that waits for replies.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The handler of SIGINT. Until [`Interrupts::catch`], Ctrl-C ends the process.
#[derive(Default)]
pub struct Interrupts {
    /// True when Ctrl-C was pressed.
    pressed: Arc<AtomicBool>,
    /// True when Ctrl-C ends the process. The first Ctrl-C sets it, so that the second one ends a process that hangs.
    ends_process: Arc<AtomicBool>,
    is_registered: bool,
}

impl Interrupts {
    /// A handler after [`Interrupts::catch`].
    pub fn caught() -> Interrupts {
        let mut interrupts = Interrupts::default();
        interrupts.catch();
        interrupts
    }
    /// From now on the first Ctrl-C makes [`Interrupts::pressed`] true. If the system refuses the handler, Ctrl-C still
    /// ends the process.
    pub fn catch(&mut self) {
        if !self.is_registered {
            self.ends_process.store(true, SeqCst);
            // The actions run in this order.
            self.is_registered = register_conditional_default(SIGINT, self.ends_process.clone())
                .and_then(|_| register(SIGINT, self.ends_process.clone()))
                .and_then(|_| register(SIGINT, self.pressed.clone()))
                .is_ok();
        }
        self.pressed.store(false, SeqCst);
        self.ends_process.store(!self.is_registered, SeqCst);
    }
    /// From now on Ctrl-C ends the process.
    pub fn release(&mut self) {
        self.ends_process.store(true, SeqCst);
    }
    /// Sleeps, up to Ctrl-C.
    pub fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.pressed()
            && let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            std::thread::sleep(left.min(CHECK_INTERVAL));
        }
    }
    /// True when Ctrl-C was pressed since [`Interrupts::catch`].
    pub fn pressed(&self) -> bool {
        self.pressed.load(SeqCst)
    }
}
