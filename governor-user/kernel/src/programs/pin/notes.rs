//! What was known of each listener when it was first seen, for listeners older than the programs: their totals begin with
//! what was queued then, and no program can tell that later. One entry of a pinned map each, written once.

use crate::programs::pin::map_name;
use crate::rows::Note;
use aya::maps::{HashMap, Map, MapData, MapError};
use governor_common::abi::MAX_LISTENERS;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The programs' maps have names in upper case.
const NAME: &str = "notes";
/// `BPF_F_NO_PREALLOC`: usually there are few.
const FLAGS: u32 = 1;
/// Stands for a count of drops that is not known; the kernel's counter has 32 bits.
const UNKNOWN: i64 = -1;

/// The map: by cookie, what to add to the count of enqueues, and the count of drops.
pub(super) struct Notes(HashMap<MapData, u64, [i64; 2]>);

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notes")
    }
}

impl Notes {
    /// Makes the map and pins it.
    pub(super) fn create(folder: &Path) -> Result<Self, MapError> {
        let map = HashMap::<_, u64, [i64; 2]>::create(MAX_LISTENERS, FLAGS)?;
        map.pin(folder.join(map_name(NAME))).map_err(|error| MapError::PinError { name: Some(NAME.into()), error })?;
        Self::open(folder)
    }

    /// Opens the pinned map.
    pub(super) fn open(folder: &Path) -> Result<Self, MapError> {
        let map = Map::from_map_data(MapData::from_pin(folder.join(map_name(NAME)))?)?;
        Ok(Self(HashMap::try_from(map)?))
    }

    /// All of them, by cookie.
    pub(super) fn all(&self) -> Result<BTreeMap<u64, Note>, MapError> {
        let decode = |(cookie, value)| (cookie, decode(value));
        self.0.iter().map(|entry| entry.map(decode)).collect()
    }

    pub(super) fn put(&mut self, cookie: u64, note: Note) -> Result<(), MapError> {
        self.0.insert(cookie, encode(note), 0)
    }

    /// Removes one; one that is not there is fine.
    pub(super) fn remove(&mut self, cookie: u64) {
        drop(self.0.remove(&cookie));
    }
}

fn encode(note: Note) -> [i64; 2] {
    [note.base, note.drops.map_or(UNKNOWN, i64::from)]
}

fn decode([base, drops]: [i64; 2]) -> Note {
    Note { base, drops: u32::try_from(drops).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        for note in
            [Note { base: -7, drops: Some(u32::MAX) }, Note { base: 4, drops: Some(0) }, Note { base: 0, drops: None }]
        {
            assert_eq!(decode(encode(note)), note);
        }
    }
}
