//! [`Functions`]: the loaded libraries. They are immutable: a change replaces them.

use super::Routes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_script::{FunctionInfo, Library, library_name};

/// Maximum number of libraries.
pub(crate) const LIBRARIES_MAX: usize = 10_000;
/// Maximum number of bytes of all library texts.
pub(crate) const CODE_BYTES_MAX: usize = 256 << 20;

/// With more functions, or more bytes of library texts, a walk over all of them runs on a helper thread.
const FUNCTIONS_AT_ONCE_MAX: usize = 256;
const CODE_BYTES_AT_ONCE_MAX: usize = 64 << 10;

/// A function of a library.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) library: Arc<Library>,
    pub(crate) info: Arc<FunctionInfo>,
    pub(crate) routes: Arc<Routes>,
}

/// Why a library is not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    /// A library has this name. The text is redis-server's.
    #[error("Library '{0}' already exists")]
    LibraryExists(String),
    /// Another library has a function with this name. The text is redis-server's.
    #[error("Function {0} already exists")]
    FunctionExists(String),
    /// There are [`LIBRARIES_MAX`] libraries.
    #[error("too many libraries")]
    TooManyLibraries,
    /// All libraries together would exceed [`CODE_BYTES_MAX`].
    #[error("the libraries have too many bytes")]
    TooManyBytes,
}

/// All libraries and their functions by name.
#[derive(Clone, Default)]
pub(crate) struct Functions {
    pub(crate) libraries: BTreeMap<Vec<u8>, Arc<Library>>,
    /// The functions by their names in lower case: as in redis-server, FCALL finds a function by its name in any case.
    functions: HashMap<Vec<u8>, Function, ahash::RandomState>,
    /// The texts of libraries of the data's files that cannot be loaded. They are saved again, so nothing is lost.
    unloaded: Vec<Arc<[u8]>>,
    /// Bytes of all library texts.
    code_bytes: usize,
    /// A number that no other state of the libraries has. 0: no library was ever loaded.
    version: u64,
}

/// The last number of [`Functions::version`].
static VERSIONS: AtomicU64 = AtomicU64::new(0);

impl Functions {
    /// A function by its name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Function> {
        // Most names are in lower case, and need no copy.
        let found = match name.iter().any(u8::is_ascii_uppercase) {
            false => self.functions.get(name),
            true => self.functions.get(&name.to_ascii_lowercase()),
        };
        found.cloned()
    }
    /// The number of functions.
    pub(crate) fn len(&self) -> usize {
        self.functions.len()
    }
    /// True when exactly this library is loaded.
    pub(crate) fn has(&self, library: &Arc<Library>) -> bool {
        self.libraries.get(&library.name).is_some_and(|other| Arc::ptr_eq(other, library))
    }
    /// Bytes of all library texts.
    pub(crate) fn code_bytes(&self) -> usize {
        self.code_bytes
    }
    /// True when a walk over all libraries takes too long for a worker.
    pub(crate) fn are_many(&self) -> bool {
        self.len() > FUNCTIONS_AT_ONCE_MAX || self.code_bytes > CODE_BYTES_AT_ONCE_MAX
    }
    /// A number that changes with the libraries.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }
    /// Call this after a change.
    pub(crate) fn set_new_version(&mut self) {
        self.version = VERSIONS.fetch_add(1, Relaxed) + 1;
    }
    /// The texts to save.
    pub(crate) fn texts(&self) -> Vec<Vec<u8>> {
        let loaded = self.libraries.values().map(|library| library.code.to_vec());
        loaded.chain(self.unloaded.iter().map(|text| text.to_vec())).collect()
    }
    /// Keeps the text of a library that cannot be loaded, until a library of its name is added or removed.
    pub(crate) fn keep_unloaded(&mut self, text: &[u8]) {
        if !self.unloaded.iter().any(|kept| **kept == *text) {
            self.unloaded.push(text.into());
        }
    }
    /// Adds a library. `replace`: it may replace a library of its name.
    ///
    /// # Errors
    /// When a name is taken or a limit is reached. Nothing is changed then.
    pub(crate) fn add(&mut self, library: Library, replace: bool) -> Result<(), LibraryError> {
        let old = self.libraries.get(&library.name).cloned();
        if old.is_some() && !replace {
            return Err(LibraryError::LibraryExists(String::from_utf8_lossy(&library.name).into_owned()));
        }
        for info in &library.functions {
            let taken = self.find(&info.name).is_some_and(|f| f.library.name != library.name);
            if taken {
                return Err(LibraryError::FunctionExists(String::from_utf8_lossy(&info.name).into_owned()));
            }
        }
        if old.is_none() && self.libraries.len() == LIBRARIES_MAX {
            return Err(LibraryError::TooManyLibraries);
        }
        if self.code_bytes() + library.code.len() > CODE_BYTES_MAX {
            return Err(LibraryError::TooManyBytes);
        }
        self.remove(&library.name);
        let library = Arc::new(library);
        for info in &library.functions {
            let function =
                Function { library: library.clone(), info: Arc::new(info.clone()), routes: Arc::default() };
            // Of two functions of a library whose names differ only in case, FCALL finds the first one.
            self.functions.entry(info.name.to_ascii_lowercase()).or_insert(function);
        }
        self.code_bytes += library.code.len();
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }
    /// Removes a library, also one that cannot be loaded. False when the name is unknown.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let unloaded = self.unloaded.len();
        self.unloaded.retain(|text| !library_name(text).is_ok_and(|kept| kept == name));
        let Some(library) = self.libraries.remove(name) else { return self.unloaded.len() < unloaded };
        self.code_bytes -= library.code.len();
        for info in &library.functions {
            self.functions.remove(&info.name.to_ascii_lowercase());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_library_that_cannot_be_loaded_is_kept_once_and_until_its_name_is_used() {
        let (one, other) = (&b"#!lua name=one\nnosuch()"[..], &b"#!lua name=other\nnosuch()"[..]);
        let mut functions = Functions::default();
        [one, other, one].iter().for_each(|text| functions.keep_unloaded(text));
        assert_eq!(functions.texts(), [one, other]);
        assert!(functions.remove(b"one") && !functions.remove(b"one"));
        let code = b"#!lua name=other\nredis.register_function('f', nil)"[..].into();
        let loaded = Library { name: b"other".to_vec(), code, functions: Vec::new() };
        functions.add(loaded, false).expect("the name is free");
        assert_eq!(functions.texts().len(), 1);
        assert!(functions.texts()[0].ends_with(b"nil)"));
    }
}
