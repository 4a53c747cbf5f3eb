//! From measurements to one pressure, and from the pressure to a level.

pub mod level;
pub mod loads;
pub mod monitors;
pub mod settings;
