//! The process itself: its clock, the service manager, and the rights it lacks.

pub mod clock;
pub mod notify;
pub mod unprivileged;
