//! What operators set, order and ask at run time.

pub(crate) mod advise;
pub(crate) mod drain;
pub(crate) mod keys;
pub(crate) mod members;
pub(crate) mod replay;
pub(crate) mod settings;
