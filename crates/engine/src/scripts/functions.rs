//! [`Functions`]: the loaded libraries. They are immutable: a change replaces them.

use super::Routes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use strand_script::{FunctionInfo, Library};

/// Maximum number of libraries.
pub(crate) const LIBRARIES_MAX: usize = 10_000;
/// Maximum number of bytes of all library texts.
pub(crate) const CODE_BYTES_MAX: usize = 256 << 20;

/// A function of a library.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) library: Arc<Library>,
    pub(crate) info: Arc<FunctionInfo>,
    pub(crate) routes: Arc<Routes>,
}

/// All libraries and their functions by name.
#[derive(Clone, Default)]
pub(crate) struct Functions {
    pub(crate) libraries: BTreeMap<Vec<u8>, Arc<Library>>,
    functions: HashMap<Vec<u8>, Function, ahash::RandomState>,
}

impl Functions {
    /// A function by its name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Function> {
        self.functions.get(name).cloned()
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
        self.libraries.values().map(|library| library.code.len()).sum()
    }
    /// Adds a library. `replace`: it may replace a library of its name.
    ///
    /// # Errors
    /// The text of redis-server's error.
    pub(crate) fn add(&mut self, library: Library, replace: bool) -> Result<(), String> {
        let name = String::from_utf8_lossy(&library.name).into_owned();
        let old = self.libraries.get(&library.name).cloned();
        if old.is_some() && !replace {
            return Err(format!("Library '{name}' already exists"));
        }
        for info in &library.functions {
            let taken = self.functions.get(&info.name).is_some_and(|f| f.library.name != library.name);
            if taken {
                let function = String::from_utf8_lossy(&info.name);
                return Err(format!("Function {function} already exists"));
            }
        }
        if old.is_none() && self.libraries.len() == LIBRARIES_MAX {
            return Err("too many libraries".into());
        }
        if self.code_bytes() + library.code.len() > CODE_BYTES_MAX {
            return Err("the libraries have too many bytes".into());
        }
        self.remove(&library.name);
        let library = Arc::new(library);
        for info in &library.functions {
            let function =
                Function { library: library.clone(), info: Arc::new(info.clone()), routes: Arc::default() };
            self.functions.insert(info.name.clone(), function);
        }
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }
    /// Removes a library. False when the name is unknown.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.libraries.remove(name) else { return false };
        for info in &library.functions {
            self.functions.remove(&info.name);
        }
        true
    }
}
