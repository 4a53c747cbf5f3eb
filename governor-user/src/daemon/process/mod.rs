//! The process itself: clock, signals, sockets, settings, and the service manager.

pub mod clock;
pub(in crate::daemon) mod notify;
pub mod reload;
pub mod settings;
pub mod signals;
pub mod sockets;
pub(in crate::daemon) mod unprivileged;
