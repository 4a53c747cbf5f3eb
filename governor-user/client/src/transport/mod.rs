//! The connection to the daemon: its socket, the task that keeps it, and how threads share it.

pub(crate) mod connection;
pub(crate) mod session;
pub(crate) mod shared_connection;
pub(crate) mod timer;
