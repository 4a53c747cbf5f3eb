//! Run-time overrides: what `governorctl set` changed, kept in the state folder so that a restart keeps it. One small
//! JSON file, replaced as a whole. Knows nothing of what the keys mean.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// One override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Dotted key.
    pub key: String,
    /// Value as typed.
    pub value: String,
    /// Who set it.
    pub set_by: String,
    /// When, RFC 3339.
    pub set_at: String,
}

/// The file that keeps them.
#[derive(Clone, Debug)]
pub struct OverrideFile {
    path: PathBuf,
}

impl OverrideFile {
    /// The file in this state folder.
    #[must_use]
    pub fn in_folder(state: &Path) -> Self {
        Self { path: state.join("overrides.json") }
    }

    /// Reads all overrides; a missing file is none.
    ///
    /// # Errors
    /// The file is there but unreadable or not ours; the message names it.
    pub fn load(&self) -> Result<Vec<Override>> {
        match std::fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is not a list of overrides: move it away", self.path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        }
    }

    /// Replaces the file as a whole.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn store(&self, all: &[Override]) -> Result<()> {
        replace(&self.path, &serde_json::to_vec_pretty(all)?)
    }
}

/// Writes a file so that a reader sees the old or the new content, never half of one.
///
/// # Errors
/// The folder cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content)
        .and_then(|()| std::fs::rename(&beside, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_survive_a_restart_and_a_foreign_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = OverrideFile::in_folder(folder.path());
        assert_eq!(file.load().unwrap(), []);
        let one = Override {
            key: "pools.chat.fair_share".into(),
            value: "80".into(),
            set_by: "uid 0".into(),
            set_at: "2026-01-01T00:00:00Z".into(),
        };
        file.store(std::slice::from_ref(&one)).unwrap();
        assert_eq!(file.load().unwrap(), [one]);
        std::fs::write(folder.path().join("overrides.json"), "{").unwrap();
        assert!(format!("{:#}", file.load().unwrap_err()).contains("overrides.json"));
    }
}
