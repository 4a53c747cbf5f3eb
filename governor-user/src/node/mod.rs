//! The running node as its surfaces see it: the handle on the driver, settings and their reload, and the sockets.

pub mod handle;
pub mod reload;
pub mod setting_views;
pub mod settings;
pub mod sockets;
