//! Who asks and holds: keys, orgs and their classes.

pub(crate) mod class;
pub(crate) mod entitle;
pub(crate) mod party;
pub(crate) mod tiers;
