//! [`Meter`]: counts the bytes that a run reads of its source, and limits the bytes per second.

use crate::source::{Object, Stat};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The bytes that a run has read of its source.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Maximum number of bytes per second.
    rate: Option<u64>,
    begun: Instant,
    bytes: Cell<u64>,
}

impl Meter {
    pub(crate) fn new(rate: Option<u64>) -> Rc<Meter> {
        Rc::new(Meter { rate, begun: Instant::now(), bytes: Cell::new(0) })
    }

    /// The bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Wraps `object`, so that the meter counts its bytes. Each read waits until the rate allows its bytes.
    pub(crate) fn wrap(self: &Rc<Meter>, object: Box<dyn Object>) -> Box<dyn Object> {
        Box::new(Metered { object, meter: self.clone() })
    }

    fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.bytes.get() as f64 / rate.max(1) as f64);
            std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
        }
    }
}

struct Metered {
    object: Box<dyn Object>,
    meter: Rc<Meter>,
}

impl Object for Metered {
    fn stat(&self) -> io::Result<Stat> {
        self.object.stat()
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let got = self.object.read_at(offset, into)?;
        self.meter.count(got);
        Ok(got)
    }
    fn is_exact(&self) -> bool {
        self.object.is_exact()
    }
}
