//! Where a layer asks for slots: the line that made it, with the endpoint. Put together once for each endpoint.

use std::sync::{Arc, PoisonError, RwLock};

/// The places of one layer.
#[derive(Debug)]
pub(super) struct Places {
    line: String,
    /// One for each endpoint that was asked for: the table of routes names some twenty.
    known: RwLock<Vec<Place>>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The name of the endpoint.
    pub(super) endpoint: Arc<str>,
    /// As leases that were lost are counted by it.
    pub(super) site: Arc<str>,
}

impl Places {
    /// Of a layer that was made at this line.
    pub(super) fn at(line: String) -> Self {
        Self { line, known: RwLock::default() }
    }

    pub(super) fn of(&self, endpoint: &'static str) -> Place {
        // A place is pushed whole or not at all, so a poisoned value is whole.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = known.iter().find(|place| *place.endpoint == *endpoint) {
            return place.clone();
        }
        drop(known);
        let place = Place { endpoint: endpoint.into(), site: format!("{} {endpoint}", self.line).into() };
        self.known.write().unwrap_or_else(PoisonError::into_inner).push(place.clone());
        place
    }
}
