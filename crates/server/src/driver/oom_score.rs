//! `oom-score-adj`: which processes the kernel ends first when the machine has no memory left. As in redis-server, a
//! primary and a replica have different values. The third value is for a process that saves; Strand has none.

use parking_lot::Mutex;
use std::io;
use strand_engine::Config;
use strand_engine::config;

/// The kernel's file with the value of this process. See proc(5).
const FILE: &str = "/proc/self/oom_score_adj";
/// The least value that the kernel takes.
const SCORE_MIN: i32 = -1000;
/// The greatest value that the kernel takes.
const SCORE_MAX: i32 = 1000;

/// The value of the process.
#[derive(Debug, Default)]
pub struct OomScore {
    /// The value that the process had before the server changed it. `None` while the server has not changed it.
    base: Mutex<Option<i32>>,
}

impl OomScore {
    /// Sets the value that `config` wants, or the former value with `oom-score-adj no`.
    ///
    /// # Errors
    /// When the file cannot be read or written. A value below the former one needs CAP_SYS_RESOURCE.
    pub fn set(&self, config: &Config, is_replica: bool) -> io::Result<()> {
        let mut base = self.base.lock();
        let Some(wanted) = config.oom_score(is_replica) else {
            let Some(former) = *base else { return Ok(()) };
            write(former)?;
            *base = None;
            return Ok(());
        };
        let former = match *base {
            Some(former) => former,
            None => read()?,
        };
        *base = Some(former);
        let score = match wanted {
            config::OomScore::Relative(more) => former + more,
            config::OomScore::Absolute(score) => score,
        };
        write(score.clamp(SCORE_MIN, SCORE_MAX))
    }
}

fn read() -> io::Result<i32> {
    let text = std::fs::read_to_string(FILE)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{FILE} has no number: {text}")))
}

fn write(score: i32) -> io::Result<()> {
    std::fs::write(FILE, format!("{score}\n"))
}
