//! The last seconds of a listener, and the verdict on them.

pub mod evidence;
pub mod history;
pub mod verdict;
pub(crate) mod window;
