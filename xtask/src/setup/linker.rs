//! bpf-linker, built for the LLVM of the unpacked compiler.

use super::{Tools, step};
use crate::exec;
use anyhow::{Result, bail};
use std::fs;

/// The last release whose `rust-llvm-*` features load the compiler's own LLVM. Releases before 0.10.4 leave a BTF name
/// that the kernel refuses.
pub(super) const VERSION: &str = "0.10.4";

/// LLVM majors this release has a feature for.
const SUPPORTED: [u32; 3] = [20, 21, 22];

/// Builds bpf-linker unless the right one is there; returns its version.
pub(super) fn install(tools: &Tools, llvm: u32) -> Result<String> {
    if !SUPPORTED.contains(&llvm) {
        bail!(
            "Debian's rustc now uses LLVM {llvm}, and bpf-linker {VERSION} knows only LLVM {SUPPORTED:?}; \
             raise VERSION in xtask/src/setup/linker.rs, or give a prebuilt object in GOVERNOR_EBPF_OBJECT"
        );
    }
    let build = tools.root.join("build");
    step::timed(format_args!("build bpf-linker {VERSION} for LLVM {llvm}"), || {
        let mut command = exec::cargo();
        command
            .args(["install", "--quiet", "--locked", "--force", "--no-default-features"])
            .args(["--features", &format!("rust-llvm-{llvm}"), "--root"])
            .arg(&tools.root)
            .arg("--target-dir")
            .arg(&build)
            .arg(format!("bpf-linker@{VERSION}"))
            // Flags for the user's own build are not meant for this program.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        step::output(&mut command)
    })?;
    if build.exists() {
        fs::remove_dir_all(&build)?;
    }
    Ok(VERSION.to_owned())
}
