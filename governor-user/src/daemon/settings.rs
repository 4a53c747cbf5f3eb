//! The settings in force: layers read once, overrides on top, all-or-nothing changes. Knows files and layers; obeying a
//! new policy is the driver's part.

use crate::config::layers::{Effective, Origin};
use crate::config::overrides::OverrideFile;
use crate::config::{Base, ConfigError, Loaded, Override, schema};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Layers and overrides.
#[derive(Debug)]
pub struct Settings {
    file: Option<PathBuf>,
    base: Base,
    overrides: Vec<Override>,
    store: OverrideFile,
    loaded: Loaded,
}

/// Why a change was refused; what was in force stays in force.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such setting.
    #[error("no setting named \"{key}\"")]
    Unknown {
        /// The key.
        key: String,
        /// The nearest name, if one is close.
        nearest: Option<String>,
    },
    /// It is read only at start.
    #[error("\"{key}\" cannot be changed at run time: set it in the file or environment and restart")]
    Fixed {
        /// The key.
        key: String,
    },
    /// There is no override to remove.
    #[error("\"{key}\" has no override")]
    NotOverridden {
        /// The key.
        key: String,
    },
    /// The value is not valid.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// It could not be kept.
    #[error("{0:#}")]
    NotKept(#[from] anyhow::Error),
}

/// A change ready to be put in force.
#[derive(Debug)]
pub struct Change {
    /// What holds then.
    pub loaded: Loaded,
    /// The setting as it is then; `None`: it has no value.
    pub after: Option<Effective>,
    /// The setting as it was.
    pub before: Option<Effective>,
    overrides: Vec<Override>,
}

impl Settings {
    /// Reads file, environment and overrides.
    ///
    /// # Errors
    /// Any layer is invalid.
    pub fn load(file: Option<PathBuf>) -> Result<Self> {
        let base = Base::read(file.as_deref(), std::env::vars())?;
        // The state folder itself may be set by file or environment, never by an override.
        let state_dir = base.resolve(&[])?.config.daemon.state_dir;
        let store = OverrideFile::in_folder(&state_dir);
        let overrides = store.load()?;
        let loaded = base.resolve(&overrides).context("with the overrides of the state folder")?;
        Ok(Self { file, base, overrides, store, loaded })
    }

    /// What is in force.
    #[must_use]
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Prepares to set (`Some`) or unset (`None`) an override.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn prepare(&self, key: &str, value: Option<&str>, by: &str, at: &str) -> Result<Change, Refused> {
        let path = self.find(key)?;
        if !schema::setting(&path).is_some_and(|row| row.live) {
            return Err(Refused::Fixed { key: key.to_owned() });
        }
        let mut overrides = self.overrides.clone();
        overrides.retain(|over| over.key != key);
        match value {
            Some(value) => overrides.push(Override {
                key: key.to_owned(),
                value: value.to_owned(),
                set_by: by.to_owned(),
                set_at: at.to_owned(),
            }),
            None if overrides.len() == self.overrides.len() => {
                return Err(Refused::NotOverridden { key: key.to_owned() });
            }
            None => {}
        }
        let loaded = self.base.resolve(&overrides)?;
        let before = self.loaded.settings.get(&path).cloned();
        let after = loaded.settings.get(&path).cloned();
        Ok(Change { loaded, after, before, overrides })
    }

    /// Keeps a prepared change: it survives a restart.
    ///
    /// # Errors
    /// The state folder cannot be written; nothing changed.
    pub fn keep(&mut self, change: Change) -> Result<(), Refused> {
        self.store.store(&change.overrides)?;
        self.overrides = change.overrides;
        self.loaded = change.loaded;
        Ok(())
    }

    /// Reads file and environment anew.
    ///
    /// # Errors
    /// A layer is invalid; what was in force stays in force.
    pub fn reload(&mut self) -> Result<&Loaded> {
        let base = Base::read(self.file.as_deref(), std::env::vars())?;
        let loaded = base.resolve(&self.overrides)?;
        self.base = base;
        self.loaded = loaded;
        Ok(&self.loaded)
    }

    /// The path of a key, whether or not it has a value now.
    fn find(&self, key: &str) -> Result<Vec<String>, Refused> {
        let unknown = || Refused::Unknown {
            key: key.to_owned(),
            nearest: self
                .loaded
                .settings
                .keys()
                .map(|path| path.join("."))
                .map(|known| (strsim::jaro_winkler(key, &known), known))
                .filter(|(score, _)| *score > 0.85)
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .map(|(_, known)| known),
        };
        self.base.path_of(key).ok_or_else(unknown)
    }
}

/// Where a value comes from, in words: file and line, variable, or who set it.
#[must_use]
pub fn origin_detail(origin: &Origin) -> Option<String> {
    match origin {
        Origin::BuiltIn => None,
        Origin::File { place } => Some(place.clone()),
        Origin::Environment { variable } => Some(variable.clone()),
        Origin::Override { detail } => Some(detail.clone()),
    }
}
