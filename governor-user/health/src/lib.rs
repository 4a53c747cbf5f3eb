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
pub mod listeners;
mod pools;
pub mod pressure;
pub mod report;
pub mod transitions;

pub use assessor::Assessor;
pub use listeners::evidence::Evidence;
pub use listeners::history::History;
pub use listeners::verdict::seconds;
pub use listeners::verdict::{Thresholds, Verdict};
pub use pressure::level::LevelMachine;
pub use pressure::loads::Loads;
pub use pressure::monitors::Pressure;
pub use report::{Judged, Report};
pub use transitions::Transitions;
