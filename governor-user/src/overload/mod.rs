//! Overload signals: what the kernel and the engine show becomes one pressure, and the pressure becomes a level; and what
//! the last seconds of a listener show becomes a verdict. Pure; knows no socket and no clock. Advisory here: nothing in
//! this module refuses work.

pub mod evidence;
pub mod history;
pub mod level;
pub mod monitors;
pub mod verdict;
mod window;

pub use evidence::Evidence;
pub use history::History;
pub use level::LevelMachine;
pub use monitors::{Pressure, assess};
pub use verdict::{Thresholds, Verdict};
