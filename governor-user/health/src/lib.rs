//! Overload signals: what the kernel and the engine show becomes one pressure, and the pressure becomes a level; and what
//! the last seconds of a listener show becomes a verdict. Pure: time is an argument. Advisory:
//! nothing in this crate refuses work.
//!
//! ```text
//!   observations ─┐                                   ┌─▶ pressure ─▶ level ─▶ engine, proxies, people
//!   vitals ───────┼─▶ assessor (history, monitors) ───┤
//!   loads ────────┘                                   └─▶ verdicts ─▶ tuner, people
//! ```

pub mod assessor;
pub mod backlog;
pub mod evidence;
pub mod history;
pub mod level;
pub mod loads;
pub mod monitors;
pub mod report;
pub mod settings;
mod spell;
pub mod transitions;
mod upstream;
pub mod verdict;
mod window;
mod work;

pub use assessor::Assessor;
pub use evidence::Evidence;
pub use history::History;
pub use level::LevelMachine;
pub use loads::Loads;
pub use monitors::Pressure;
pub use report::{Judged, Report};
pub use transitions::Transitions;
pub use verdict::seconds;
pub use verdict::{Thresholds, Verdict};
