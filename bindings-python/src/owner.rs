//! The owner of reentrant locks.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;

use crate::argument::bytes;

/// An owner of reentrant locks: acquires with equal owners, through one client, share one hold.
///
/// `Owner()` is equal only to itself; `Owner("name")` to every owner of that name. Pass it as `owner=` where the
/// default (the thread, or in asyncio the task) is wrong: for a request, a job, a group of tasks.
#[pyclass(frozen, module = "onelock")]
pub(crate) struct Owner {
    pub(crate) owner: onelock::Owner,
    name: Option<Py<PyAny>>,
}

#[pymethods]
impl Owner {
    #[new]
    #[pyo3(signature = (name=None, /))]
    fn new(name: Option<&Bound<'_, PyAny>>) -> PyResult<Owner> {
        let owner = match name {
            None => onelock::Owner::new(),
            Some(name) => onelock::Owner::named(bytes(name, "the owner's name", "make an owner")?),
        };
        Ok(Owner { owner, name: name.map(|name| name.clone().unbind()) })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Owner>().is_ok_and(|other| other.get().owner == self.owner)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.owner.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        match &self.name {
            None => Ok("Owner()".to_owned()),
            Some(name) => Ok(format!("Owner({})", name.bind(py).repr()?)),
        }
    }
}
