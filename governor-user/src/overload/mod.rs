//! Overload signals: what the kernel and the engine show becomes one pressure, and the pressure becomes a level. Pure;
//! knows no socket and no clock. Advisory here: nothing in this module refuses work.

pub mod level;
pub mod monitors;

pub use level::LevelMachine;
pub use monitors::{Evidence, assess};
