//! `strand_chain`: Strand's byte chain as a Python module, for programs whose buffer is `foolscap.stringchain`.
//!
//! [`StringChain`] has that class's methods with the same results. Its bytes lie in a [`Chain`]. So bytes that are
//! put back in front go where they came from (Foolscap's receiver does this with every header that it looks at), and
//! a piece that is split off shares its memory. Built for CPython's stable interface: one binary for every version
//! from 3.9 on.
//!
//! **Invariant:** this crate knows the chain and Python, and nothing else of Strand.

use pyo3::exceptions::{PyAssertionError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use strand_chain::{Blob, Chain};

/// A string of at least this length gets an allocation of its own, of exactly its length. Shorter strings lie side by
/// side in blocks.
const OWN_BLOB_BYTES_MIN: usize = 1024;

/// An ordered chain of byte strings. Strings are added at either end, and taken from the front in pieces of any
/// length.
#[pyclass(subclass, weakref, module = "strand_chain")]
#[derive(Default)]
struct StringChain {
    chain: Chain,
}

#[pymethods]
impl StringChain {
    #[new]
    fn new() -> StringChain {
        StringChain::default()
    }

    /// Adds the string `s` at the end.
    fn append(&mut self, s: &Bound<'_, PyAny>) -> PyResult<()> {
        let s = bytes(s)?.as_bytes();
        if s.len() < OWN_BLOB_BYTES_MIN {
            self.chain.push_slice(s);
        } else {
            let mut blob = Blob::new();
            blob.try_extend_from_slice(s).map_err(|no_room| PyMemoryError::new_err(no_room.to_string()))?;
            self.chain.push_blob(blob);
        }
        Ok(())
    }

    /// Puts the string `s` in front.
    fn appendleft(&mut self, s: &Bound<'_, PyAny>) -> PyResult<()> {
        self.chain.push_front(bytes(s)?.as_bytes());
        Ok(())
    }

    /// All bytes in one string. The bytes stay in the chain.
    fn as_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.first(py, self.chain.len())
    }

    /// The first `numbytes` bytes, or all when there are fewer. The bytes stay in the chain.
    fn peekleft<'py>(&self, py: Python<'py>, numbytes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        self.first(py, self.at_most(numbytes)?)
    }

    /// Removes and returns the first `numbytes` bytes, or all when there are fewer.
    fn popleft<'py>(
        &mut self,
        py: Python<'py>,
        numbytes: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let n = self.at_most(numbytes)?;
        let taken = self.first(py, n)?;
        self.chain.advance(n);
        Ok(taken)
    }

    /// Removes the first `numbytes` bytes, or all when there are fewer, and returns them as a chain of this class.
    /// Copies no bytes.
    fn popleft_new_stringchain<'py>(
        slf: &Bound<'py, StringChain>,
        numbytes: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, StringChain>> {
        // Do first what may fail: a subclass's constructor, or reading a wrong number.
        let taken = empty_like(slf)?;
        let mut this = slf.borrow_mut();
        let n = this.at_most(numbytes)?;
        taken.borrow_mut().chain = this.chain.split_to(n);
        Ok(taken)
    }

    /// Removes the first `numbytes` bytes, or all when there are fewer.
    fn trim(&mut self, numbytes: &Bound<'_, PyAny>) -> PyResult<()> {
        let n = self.at_most(numbytes)?;
        self.chain.advance(n);
        Ok(())
    }

    /// Removes all bytes.
    fn clear(&mut self) {
        self.chain.clear();
    }

    /// A second chain of this class with these bytes. Copies no bytes.
    fn copy<'py>(slf: &Bound<'py, StringChain>) -> PyResult<Bound<'py, StringChain>> {
        let copy = empty_like(slf)?;
        copy.borrow_mut().chain = slf.borrow().chain.share();
        Ok(copy)
    }

    fn __len__(&self) -> usize {
        self.chain.len()
    }

    /// The length of the chain, as an attribute.
    #[getter]
    fn len(&self) -> usize {
        self.chain.len()
    }

    /// Returns true. Raises an error when the lengths of the pieces do not add up to the length of the chain.
    fn _assert_invariants(&self) -> PyResult<bool> {
        let pieces: usize = self.chain.slices().map(<[u8]>::len).sum();
        if pieces != self.chain.len() || self.chain.slices().any(<[u8]>::is_empty) {
            return Err(PyAssertionError::new_err((pieces, self.chain.len())));
        }
        Ok(true)
    }

    fn __repr__(&self) -> String {
        format!("<strand_chain.StringChain of {} bytes>", self.chain.len())
    }
}

impl StringChain {
    /// A copy of the first `n` bytes, which must be there.
    fn first<'py>(&self, py: Python<'py>, n: usize) -> PyResult<Bound<'py, PyBytes>> {
        if let Some(front) = self.chain.front().get(..n) {
            return Ok(PyBytes::new(py, front));
        }
        PyBytes::new_with(py, n, |out| match self.chain.peek(out) {
            true => Ok(()),
            false => Err(PyMemoryError::new_err("the chain is shorter than its length")),
        })
    }

    /// The number of bytes that `numbytes` asks for, at most the length of the chain. As in the original, an empty
    /// chain or a false value (`0`, `None`) of any type gives 0. Otherwise a negative number breaks an assertion.
    fn at_most(&self, numbytes: &Bound<'_, PyAny>) -> PyResult<usize> {
        if self.chain.is_empty() {
            return Ok(0);
        }
        match numbytes.extract::<usize>() {
            Ok(n) => Ok(n.min(self.chain.len())),
            // The integer does not fit into a usize: it is negative, or larger than any chain.
            Err(error) => match numbytes.cast::<PyInt>() {
                Ok(n) if n.lt(0)? => Err(PyAssertionError::new_err(numbytes.clone().unbind())),
                Ok(_) => Ok(self.chain.len()),
                Err(_) if !numbytes.is_truthy()? => Ok(0),
                Err(_) => Err(error),
            },
        }
    }
}

/// Checks that `s` is of type `bytes`.
fn bytes<'a, 'py>(s: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyBytes>> {
    s.cast::<PyBytes>().map_err(|_| PyAssertionError::new_err("bytes are expected"))
}

/// A new object of the class of `model`, which may be a subclass.
fn empty_like<'py>(model: &Bound<'py, StringChain>) -> PyResult<Bound<'py, StringChain>> {
    let class = model.get_type();
    if class.is(model.py().get_type::<StringChain>()) {
        return Bound::new(model.py(), StringChain::default());
    }
    Ok(class.call0()?.cast_into::<StringChain>()?)
}

/// Fills the Python module.
#[pymodule]
#[pyo3(name = "strand_chain")]
fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<StringChain>()
}
