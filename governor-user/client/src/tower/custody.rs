//! What holds a request's lease: the layer while the response lasts, or the handler that takes it. Knows nothing of
//! bodies and connections.

use crate::lease::{Lease, LeaseHandle};
use std::sync::{Arc, Mutex, PoisonError};

/// The lease of one request, in the request's extensions. The layer ends it with the response body. Work that outlasts
/// that, above all an upgraded connection, either [takes](Self::take) the lease, or keeps a clone of this: the lease of
/// an *upgraded* request lives until the last clone is gone.
#[derive(Clone, Debug)]
pub struct Custody {
    held: Arc<Mutex<Option<Lease>>>,
    handle: LeaseHandle,
}

impl Custody {
    pub(super) fn of(lease: Lease) -> Self {
        let handle = lease.handle();
        Self { held: Arc::new(Mutex::new(Some(lease))), handle }
    }

    /// Takes the lease over: from now on it ends when what is returned is dropped, and it can be suspended and resumed.
    /// `None` when it was taken already, or has ended.
    #[must_use = "dropping what is returned ends the lease"]
    pub fn take(&self) -> Option<Lease> {
        // The lock only ever guards a take, so a poisoned value is whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A view of the lease, taken or not.
    #[must_use]
    pub fn handle(&self) -> &LeaseHandle {
        &self.handle
    }

    fn is_empty(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// Ends the lease when dropped, whatever other clones of its custody there are.
#[derive(Debug)]
pub(super) struct Keep(Option<Custody>);

impl Keep {
    pub(super) fn new(custody: Custody) -> Self {
        Self(Some(custody))
    }

    pub(super) fn touch(&self) {
        if let Some(custody) = &self.0 {
            custody.handle.touch();
        }
    }

    /// Leaves the lease to the clones of its custody. False when there are none, and it ends here.
    pub(super) fn leave(mut self) -> bool {
        self.0.take().is_some_and(|custody| Arc::strong_count(&custody.held) > 1 || custody.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(Custody::is_empty)
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        if let Some(custody) = &self.0 {
            drop(custody.take());
        }
    }
}
