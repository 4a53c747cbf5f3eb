//! What an earlier setup built, as one small JSON file. A stamp that cannot be read is no stamp.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Raised when the layout of `target/tools` changes, so that older folders are built anew.
const RECIPE: u32 = 1;

/// Versions of the finished tools.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stamp {
    recipe: u32,
    /// Debian version of the compiler.
    pub(super) compiler: String,
    /// Major version of its LLVM.
    pub(super) llvm: u32,
    /// Version of bpf-linker.
    pub(super) linker: String,
}

impl Stamp {
    pub(super) fn new(compiler: String, llvm: u32, linker: String) -> Self {
        Self { recipe: RECIPE, compiler, llvm, linker }
    }

    /// The stamp at `path`, if it is of this recipe.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        serde_json::from_str(&text).ok().filter(|stamp: &Self| stamp.recipe == RECIPE)
    }

    /// Writes the stamp; done last, so that its presence means "finished".
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("cannot render the stamp")?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }
}
