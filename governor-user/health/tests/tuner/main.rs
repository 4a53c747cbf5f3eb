//! The tuner without a kernel: simulated machines give it observations and the results of its actions.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod machine;
mod properties;
mod situations;
