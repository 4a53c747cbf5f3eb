//! The requests of a pool over time: what waits, what fails, how long slots are held.

pub(crate) mod spell;
pub(crate) mod upstream;
pub(crate) mod work;
