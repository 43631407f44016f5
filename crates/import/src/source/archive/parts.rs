//! The parts of a zip in memory, by name. Office files are made of such parts.

use super::budget::ArchiveBudget;
use super::bytes::Window;
use super::{InMemory, zip};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::rc::Rc;

/// A zip in memory.
pub(crate) struct Parts {
    window: Window,
    budget: Rc<ArchiveBudget>,
    members: BTreeMap<String, zip::Member>,
}

/// Lists the zip `bytes`. All parts together may unpack to at most `bytes_max` bytes.
///
/// # Errors
/// When the zip is damaged, or exceeds a limit.
pub(crate) fn unzipped(bytes: &[u8], bytes_max: u64) -> io::Result<Parts> {
    let window = Window::whole(Rc::new(InMemory(Rc::new(bytes.to_vec()))))?;
    let budget = Rc::new(ArchiveBudget::for_bytes(bytes_max));
    let members = zip::members(&window, &budget)?;
    let named = members.into_iter().map(|m| (String::from_utf8_lossy(&m.name).into_owned(), m));
    Ok(Parts { members: named.collect(), window, budget })
}

impl Parts {
    /// The names of the parts.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.members.keys().cloned()
    }
    /// Opens the part with this name. `None` when there is no such part.
    ///
    /// # Errors
    /// When the part is damaged, or exceeds a limit.
    pub(crate) fn open(&mut self, name: &str) -> io::Result<Option<impl Read + use<>>> {
        let Some(member) = self.members.get(name) else { return Ok(None) };
        let object = zip::open(&self.window, member, &self.budget)?;
        let window = Window::whole(Rc::from(object))?;
        Ok(Some(window.reader()))
    }
}
