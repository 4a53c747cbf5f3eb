//! A test that cannot run here says why, on a line of its own that `cargo xtask test` counts.

/// Skips the calling test, which returns after it.
///
/// # Panics
/// Where `GOVERNOR_REQUIRE_KERNEL=1` says that nothing stands in the way here: a skip would hide a fault.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("GOVERNOR_REQUIRE_KERNEL").is_none_or(|value| value != "1"),
        "must not be skipped: {reason}"
    );
    skip_for_lack(reason);
}

/// As [`skip`], for what a kernel may lack without any fault: it is never a failure.
pub fn skip_for_lack(reason: &str) {
    #[expect(clippy::print_stdout, reason = "read by the test command")]
    {
        println!("SKIP: {reason}");
    }
}
