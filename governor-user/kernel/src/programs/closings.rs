//! Connections whose end the programs report as it happens: the table that names them, and the buffer that their ends
//! come out of. An end wakes no task: the reader polls the buffer often enough. Knows no lease.
//!
//! What an earlier run of the daemon named stays in the table until it ends or its place is needed: its leases are
//! registered again, and an end that is not waited for is skipped.

use crate::programs::maps::{Error, Source, typed};
use aya::maps::{Array, MapData, RingBuf};
use governor_common::abi::leased_places;
use std::collections::BTreeMap;
use std::fmt;

/// Ends taken from the buffer at a time; it holds no more.
const ENDS_PER_READ: usize = 8_192;

/// What the programs watch for one reader.
pub struct Closings {
    leased: Array<MapData, u64>,
    closed: RingBuf<MapData>,
    /// Cookies by the place they took.
    taken: BTreeMap<u32, u64>,
}

impl fmt::Debug for Closings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closings").finish_non_exhaustive()
    }
}

impl Closings {
    /// Takes the maps.
    pub(crate) fn take(source: &mut Source<'_>) -> Result<Self, Error> {
        Ok(Self { leased: typed(source, "LEASED")?, closed: typed(source, "CLOSED")?, taken: BTreeMap::new() })
    }

    /// Waits for the end of the connection with this cookie; false when that cannot be, because both its places are
    /// taken.
    pub(crate) fn follow(&mut self, cookie: u64) -> bool {
        let places = leased_places(cookie);
        if places.iter().any(|place| self.taken.get(place) == Some(&cookie)) {
            return true;
        }
        let Some(free) = places.into_iter().find(|place| !self.taken.contains_key(place)) else { return false };
        let named = self.leased.set(free, cookie, 0).is_ok();
        if named {
            self.taken.insert(free, cookie);
        }
        named
    }

    /// Waits for it no longer.
    pub(crate) fn forget(&mut self, cookie: u64) {
        if let Some(place) = self.free(cookie) {
            // What stays would never be reported.
            drop(self.leased.set(place, 0, 0));
        }
    }

    /// The connections that have ended, each once.
    pub(crate) fn ended(&mut self) -> Vec<u64> {
        let mut ended = Vec::new();
        while ended.len() < ENDS_PER_READ
            && let Some(item) = self.closed.next()
        {
            ended.extend(bytemuck::try_pod_read_unaligned::<u64>(&item).ok());
        }
        // Who sees the end has freed the place.
        ended.retain(|cookie| self.free(*cookie).is_some());
        ended
    }

    /// Whether any end is waited for.
    pub(crate) fn waits(&self) -> bool {
        !self.taken.is_empty()
    }

    fn free(&mut self, cookie: u64) -> Option<u32> {
        let place = leased_places(cookie).into_iter().find(|place| self.taken.get(place) == Some(&cookie))?;
        self.taken.remove(&place);
        Some(place)
    }
}
