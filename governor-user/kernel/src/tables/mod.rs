//! The kernel's own tables and values of sockets and network namespaces, read without programs.

#[expect(unsafe_code, reason = "a socket option that no crate wraps")]
pub(crate) mod deferred;
#[expect(unsafe_code, reason = "two socket calls that no crate wraps")]
pub mod listening;
pub(crate) mod netstat;
pub(crate) mod procfs;
pub(crate) mod sockdiag;
