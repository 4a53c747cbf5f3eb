//! The settings in force: layers read once, overrides on top, all-or-nothing changes. Knows files and layers; obeying a
//! new policy is the driver's part.

use crate::config::environment;
use crate::config::layers::{self, Effective, Origin};
use crate::config::schema;
use crate::config::{Base, ConfigError, Loaded, Override};
use crate::process::unprivileged;
use crate::state::{self, OVERRIDES, StateDir, Stored};
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Layers and overrides.
#[derive(Debug)]
pub struct Settings {
    file: Option<PathBuf>,
    base: Base,
    overrides: Vec<Override>,
    state: StateDir,
    loaded: Loaded,
    /// The settings that only a start reads, as the start read them.
    started: layers::Settings,
    failure: Option<ReloadFailure>,
}

/// The last reload changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadFailure {
    /// What was wrong.
    pub error: String,
    /// When, RFC 3339.
    pub at: String,
}

/// One setting that a reload changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its path.
    pub path: Vec<String>,
    /// As it was; `None`: it had no value.
    pub before: Option<Effective>,
    /// As it is now.
    pub after: Option<Effective>,
    /// Whether it waits for a restart.
    pub is_pending: bool,
}

/// One setting as it is in force and as a restart would have it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its path.
    pub path: &'a [String],
    /// In force; `None`: it has no value.
    pub effective: Option<&'a Effective>,
    /// After a restart, where that differs.
    pub pending: Option<Option<&'a Effective>>,
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
    #[error("\"{key}\" cannot be changed at run time: set it in the file or environment and {then}")]
    Fixed {
        /// The key.
        key: String,
        /// What puts it in force: `reload` or `restart`.
        then: &'static str,
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
    /// Reads file, environment and overrides, and takes the state folder for this process.
    ///
    /// # Errors
    /// File or environment are invalid, or the state folder cannot be had. An override that is invalid is a warning.
    pub fn load(file: Option<PathBuf>) -> Result<Self> {
        let base = Base::read(file.as_deref(), environment::of_process())?;
        // The state folder itself may be set by file or environment, never by an override.
        let daemon = base.resolve(&[])?.config.daemon;
        let state = StateDir::open(&daemon.state_dir).map_err(|error| unprivileged::advise(error, &daemon))?;
        let overrides: Vec<Override> = state.load(OVERRIDES).unwrap_or_default();
        let loaded = base.resolve_leniently(&overrides)?;
        let started = loaded.settings.iter().filter(|(path, _)| !is_reloaded(path));
        let started = started.map(|(path, effective)| (path.clone(), effective.clone())).collect();
        Ok(Self { file, base, overrides, state, loaded, started, failure: None })
    }

    /// What file and environment have that is ignored on purpose, one line.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.base.note()
    }

    /// Reads the same and changes nothing, also beside a running daemon.
    ///
    /// # Errors
    /// File or environment are invalid.
    pub fn check(file: Option<PathBuf>) -> Result<(Loaded, Option<String>)> {
        let base = Base::read(file.as_deref(), environment::of_process())?;
        let state_dir = base.resolve(&[])?.config.daemon.state_dir;
        let parse = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|error| error.to_string());
        let read = state::read_with::<Vec<Override>>(&state_dir, OVERRIDES, parse);
        let (overrides, damage) = read.map_or_else(|damage| (None, Some(damage)), |found| (found, None));
        let mut loaded = base.resolve_leniently(&overrides.unwrap_or_default())?;
        let warn = |damage| format!("{}: {damage}; a start moves it aside", state_dir.join(OVERRIDES.name).display());
        loaded.warnings.extend(damage.map(warn));
        Ok((loaded, base.note()))
    }

    /// The state folder.
    #[must_use]
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// Every setting, in force and after a restart.
    pub fn shown(&self) -> impl Iterator<Item = Shown<'_>> {
        let gone = self.started.keys().filter(|path| !self.loaded.settings.contains_key(*path));
        let paths: BTreeSet<&Vec<String>> = self.loaded.settings.keys().chain(gone).collect();
        paths.into_iter().map(|path| {
            let newest = self.loaded.settings.get(path);
            if is_reloaded(path) {
                return Shown { path, effective: newest, pending: None };
            }
            let effective = self.started.get(path);
            let differs = effective.map(|one| &one.value) != newest.map(|one| &one.value);
            Shown { path, effective, pending: differs.then_some(newest) }
        })
    }

    /// Why the last reload changed nothing, if it did not.
    #[must_use]
    pub fn reload_failure(&self) -> Option<&ReloadFailure> {
        self.failure.as_ref()
    }

    /// The newest configuration. Settings that only a start reads may not be in force, see [`Self::shown`].
    #[must_use]
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// How many settings are overridden.
    #[must_use]
    pub fn overrides(&self) -> usize {
        self.overrides.len()
    }

    /// Prepares to set (`Some`) or unset (`None`) an override.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn prepare(&self, key: &str, value: Option<&str>, by: &str, at: &str) -> Result<Change, Refused> {
        // An override may be taken away also when its key is no setting any more.
        let is_left_over = value.is_none() && self.overrides.iter().any(|over| over.key == key);
        let path = match self.find(key) {
            Err(Refused::Unknown { .. }) if is_left_over => Vec::new(),
            found => found?,
        };
        let row = schema::setting(&path);
        if !is_left_over && !row.is_some_and(schema::Setting::is_live) {
            let then = if row.is_some_and(schema::Setting::is_reloaded) { "reload" } else { "restart" };
            return Err(Refused::Fixed { key: key.to_owned(), then });
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
        let loaded = self.base.resolve_with(&overrides, key)?;
        let before = self.loaded.settings.get(&path).cloned();
        let after = loaded.settings.get(&path).cloned();
        Ok(Change { loaded, after, before, overrides })
    }

    /// Takes a prepared change over; the answer says whether it is stored, so that it survives a restart.
    pub fn keep(&mut self, change: Change) -> Stored {
        self.overrides = change.overrides;
        self.loaded = change.loaded;
        let content = serde_json::to_vec_pretty(&self.overrides).expect("plain data serializes");
        self.state.store(OVERRIDES, content)
    }

    /// Reads file and environment again; returns what changed.
    ///
    /// # Errors
    /// A layer is invalid; what was in force stays in force, and [`Self::reload_failure`] says why.
    pub fn reload(&mut self, at: &str) -> Result<Vec<Changed>, ConfigError> {
        let read = Base::read(self.file.as_deref(), environment::of_process())
            .and_then(|base| Ok((base.resolve_leniently(&self.overrides)?, base)));
        let (loaded, base) = read.inspect_err(|error| {
            self.failure = Some(ReloadFailure { error: error.in_one_line(), at: at.to_owned() });
        })?;
        self.failure = None;
        self.base = base;
        let before = std::mem::replace(&mut self.loaded, loaded).settings;
        let after = &self.loaded.settings;
        let paths: BTreeSet<&Vec<String>> = before.keys().chain(after.keys()).collect();
        let changed = paths.into_iter().filter_map(|path| {
            let (before, after) = (before.get(path), after.get(path));
            let differs = before.map(|one| &one.value) != after.map(|one| &one.value);
            differs.then(|| Changed {
                path: path.clone(),
                before: before.cloned(),
                after: after.cloned(),
                is_pending: !is_reloaded(path),
            })
        });
        Ok(changed.collect())
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

fn is_reloaded(path: &[String]) -> bool {
    schema::setting(path).is_some_and(schema::Setting::is_reloaded)
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
