//! [`Blob`]: a byte string in one allocation, shared by reference count.
//! STARTING VERSION over `Arc<Vec<u8>>`; the final one is a thin pointer to one allocation (count, length, capacity, bytes).

use std::sync::Arc;

/// A byte string in one allocation. Cloning shares it; writing needs it unique (see [`Blob::make_mut`]).
#[derive(Clone, Default)]
pub struct Blob(Arc<Vec<u8>>);

impl Blob {
    /// An empty blob.
    pub fn new() -> Blob {
        Blob::default()
    }
    /// An empty blob with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Blob {
        Blob(Arc::new(Vec::with_capacity(capacity)))
    }
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// True when the length is 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Bytes the allocation can hold without growing.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
    /// True when no other handle shares the allocation.
    pub fn is_unique(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some()
    }
    /// The bytes for writing; copies first when shared.
    pub fn make_mut(&mut self) -> &mut [u8] {
        Arc::<Vec<u8>>::make_mut(&mut self.0).as_mut_slice()
    }
    /// Appends, growing geometrically; copies first when shared.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        Arc::make_mut(&mut self.0).extend_from_slice(bytes);
    }
    /// Sets the length, filling new bytes with `fill`; copies first when shared.
    pub fn resize(&mut self, len: usize, fill: u8) {
        Arc::make_mut(&mut self.0).resize(len, fill);
    }
    /// Bytes of heap this blob holds, header included (shared or not).
    pub fn heap_bytes(&self) -> usize {
        40 + self.0.capacity()
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Blob {
        Blob(Arc::new(bytes.to_vec()))
    }
}
impl std::ops::Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
impl PartialEq for Blob {
    fn eq(&self, other: &Blob) -> bool {
        self.as_slice() == other.as_slice()
    }
}
impl Eq for Blob {}
impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes, {:?})", self.len(), String::from_utf8_lossy(&self[..self.len().min(32)]))
    }
}
