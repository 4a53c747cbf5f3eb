//! Packages of Debian, fetched without changing the machine: where they come from, and an apt of our own.

pub(crate) mod apt;
pub(crate) mod archive;
