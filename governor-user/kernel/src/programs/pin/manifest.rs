//! What a run of the daemon leaves for the next one beside programs, links and maps: which programs these are, how they
//! were set up, what was found out about their hooks, and what was learned since. One value of a pinned map, written
//! whole: the kernel copies it in one go, so a process that is killed leaves the old one or the new one.

use crate::programs::loader::Facts;
use crate::programs::pin::folder::MANIFEST;
use crate::programs::tracepoint::Memory;
use aya::maps::{Array, Map, MapData, MapError};
use governor_observation::Tier;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Raised when a reader of before would misread what is written now.
const FORMAT: u32 = 1;
/// Size of the map's only value: the length of the text as four bytes, then JSON.
const BYTES: usize = 32 * 1024;

/// Everything that is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// Version of the daemon that loaded the programs.
    pub(super) version: String,
    /// SHA-256 of the object that they are from.
    pub(super) object: String,
    pub(super) settings: Settings,
    /// `CLOCK_MONOTONIC` nanoseconds when they began to count.
    pub(super) began_ns: u64,
    /// Names of the programs whose links are pinned.
    pub(super) links: Vec<String>,
    pub(super) facts: Facts,
    pub(super) memory: Memory,
}

/// What was asked for when the programs were loaded; with anything else they are loaded anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) max_listeners: u32,
    /// Hooks of better tiers were not tried.
    pub(super) best: Tier,
}

impl Settings {
    /// Why these are not `wanted`; `None` if they are.
    pub(super) fn difference(self, wanted: Self) -> Option<String> {
        if self.max_listeners != wanted.max_listeners {
            let (was, is) = (self.max_listeners, wanted.max_listeners);
            return Some(format!("kernel.max_listeners was {was} and is {is} now"));
        }
        (self.best != wanted.best).then(|| format!("at most the {} tier was asked for, now {}", self.best, wanted.best))
    }
}

impl Manifest {
    /// Of this version, with nothing learned yet.
    pub(super) fn new(object: String, settings: Settings, began_ns: u64, links: Vec<String>, facts: Facts) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            object,
            settings,
            began_ns,
            links,
            facts,
            memory: Memory::default(),
        }
    }
}

/// Why there is no manifest to be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the manifest's map cannot be used")]
    Map(#[from] MapError),
    #[error("the manifest is of another format")]
    Format,
    #[error("the manifest would be longer than {BYTES} bytes")]
    Length,
    #[error("the manifest cannot be pinned")]
    Pin(#[from] aya::pin::PinError),
}

/// The map that holds it.
pub(super) struct Store(Array<MapData, [u8; BYTES]>);

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Makes the map, writes the manifest and pins it: what was pinned before counts from now on.
    pub(super) fn create(folder: &Path, manifest: &Manifest) -> Result<Self, Error> {
        let mut store = Self(Array::create(1, 0)?);
        store.write(manifest)?;
        store.0.pin(folder.join(MANIFEST))?;
        Self::open(folder)
    }

    /// Opens the pinned map.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let map = Map::from_map_data(MapData::from_pin(folder.join(MANIFEST))?)?;
        Ok(Self(Array::try_from(map)?))
    }

    pub(super) fn read(&self) -> Result<Manifest, Error> {
        decode(&self.0.get(&0, 0)?)
    }

    pub(super) fn write(&mut self, manifest: &Manifest) -> Result<(), Error> {
        Ok(self.0.set(0, encode(manifest)?, 0)?)
    }
}

fn encode(manifest: &Manifest) -> Result<[u8; BYTES], Error> {
    let text = serde_json::to_vec(manifest).map_err(|_| Error::Format)?;
    let length = u32::try_from(text.len()).map_err(|_| Error::Length)?;
    let mut value = [0; BYTES];
    let (head, body) = value.split_at_mut(size_of::<u32>());
    head.copy_from_slice(&length.to_le_bytes());
    body.get_mut(..text.len()).ok_or(Error::Length)?.copy_from_slice(&text);
    Ok(value)
}

fn decode(value: &[u8]) -> Result<Manifest, Error> {
    let (head, body) = value.split_first_chunk().ok_or(Error::Format)?;
    let length = usize::try_from(u32::from_le_bytes(*head)).map_err(|_| Error::Format)?;
    let text = body.get(..length).ok_or(Error::Format)?;
    let manifest: Manifest = serde_json::from_slice(text).map_err(|_| Error::Format)?;
    if manifest.format == FORMAT { Ok(manifest) } else { Err(Error::Format) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let settings = Settings { max_listeners: 512, best: Tier::Trampoline };
        Manifest::new("ab".into(), settings, 7, vec!["x".into()], Facts::default())
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(decode(&encode(&manifest()).unwrap()).unwrap(), manifest());
    }

    #[test]
    fn a_value_that_is_no_manifest_of_this_format_is_refused() {
        let newer = Manifest { format: FORMAT + 1, ..manifest() };
        assert!(matches!(decode(&encode(&newer).unwrap()), Err(Error::Format)));
        assert!(matches!(decode(&[0; BYTES]), Err(Error::Format)));
        assert!(matches!(decode(&[255; BYTES]), Err(Error::Format)));
        assert!(matches!(decode(&[0; 3]), Err(Error::Format)));
    }

    #[test]
    fn a_manifest_that_does_not_fit_is_not_cut_short() {
        let long = Manifest { version: "x".repeat(BYTES), ..manifest() };
        assert!(matches!(encode(&long), Err(Error::Length)));
    }

    #[test]
    fn a_changed_setting_is_named_with_both_values() {
        let wanted = Settings { max_listeners: 600, ..manifest().settings };
        assert_eq!(wanted.difference(wanted), None);
        let why = manifest().settings.difference(wanted).unwrap();
        assert!(why.contains("512") && why.contains("600"), "{why}");
        let wanted = Settings { best: Tier::Tracepoint, ..manifest().settings };
        let why = manifest().settings.difference(wanted).unwrap();
        assert!(why.contains("trampoline") && why.contains("tracepoint"), "{why}");
    }
}
