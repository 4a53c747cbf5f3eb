//! The targets: `hold` checks what must hold for any bytes and says what it saw as a number; `seeds` are good inputs.

pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod frames;
pub(crate) mod leases;
pub(crate) mod page;

use std::hash::{DefaultHasher, Hash, Hasher};

/// What a target saw, as a number.
fn outcome(seen: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    seen.hash(&mut hasher);
    hasher.finish()
}
