//! [`LimitedLines`]: lines of the log that clients can cause in any number. Only the first lines of an interval are
//! logged. A further line tells how many were left out.

use crate::Host;
use parking_lot::Mutex;
use strand_diag::LineLimit;

/// Maximum number of lines per interval about clients that are closed because of a limit.
const CUT_OFFS_MAX: u64 = 10;
const CUT_OFFS_INTERVAL_US: u64 = 1_000_000;
/// Maximum number of lines per interval about failed logins.
const LOGINS_MAX: u64 = 10;
const LOGINS_INTERVAL_US: u64 = 10_000_000;

/// Lines about one matter: see the module.
#[derive(Debug)]
pub(crate) struct LimitedLines {
    limit: Mutex<LineLimit>,
    /// What the line about the others says after their number.
    left_out: &'static str,
}

impl LimitedLines {
    /// Lines about clients that are closed because of a limit.
    pub(crate) const fn of_cut_offs() -> LimitedLines {
        LimitedLines {
            limit: Mutex::new(LineLimit::new(CUT_OFFS_MAX, CUT_OFFS_INTERVAL_US)),
            left_out: "more clients were closed because of a limit and not logged",
        }
    }
    /// Lines about failed logins.
    pub(crate) const fn of_failed_logins() -> LimitedLines {
        LimitedLines {
            limit: Mutex::new(LineLimit::new(LOGINS_MAX, LOGINS_INTERVAL_US)),
            left_out: "more failed logins were not logged",
        }
    }
    /// Counts a line. True when the caller logs this line.
    pub(crate) fn may_log(&self, host: &dyn Host) -> bool {
        let (is_logged, left_out) = self.limit.lock().add(host.mono_us());
        self.log_left_out(host, left_out);
        is_logged
    }
    /// Logs how many lines were left out in the last interval, if it is over. Called with every tick.
    pub(crate) fn tick(&self, host: &dyn Host) {
        let left_out = self.limit.lock().take_left_out(host.mono_us());
        self.log_left_out(host, left_out);
    }
    fn log_left_out(&self, host: &dyn Host, left_out: u64) {
        if left_out > 0 {
            host.warn(&format!("{left_out} {}", self.left_out));
        }
    }
}
