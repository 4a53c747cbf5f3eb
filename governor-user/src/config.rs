//! Configuration: layers of settings resolved once into newtypes with working defaults. Unknown keys are errors;
//! nothing is ignored in silence. Knows the engine's policy types, not the engine.

pub mod environment;
pub mod file;
pub mod layers;
pub mod overrides;
pub mod resolve;
pub mod schema;
pub mod template;
pub mod value;

pub use overrides::Override;
pub use resolve::{
    AtExit, CgroupCeiling, Config, DaemonConfig, KernelConfig, ListenerPattern, ListenerPolicy, Names, OverloadConfig,
    Ranges, TunerConfig, TunerMode,
};

use environment::EnvironmentLayer;
use file::FileLayer;
use layers::{Settings, Sources};
use std::path::{Path, PathBuf};

/// One thing wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File and line, variable, or override.
    pub place: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(place: String, message: String) -> Self {
        Self { place, message }
    }
}

impl core::fmt::Display for Problem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("the configuration is not valid\n{}", lines(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// What is wrong, for a line of a log or a table.
    #[must_use]
    pub fn in_one_line(&self) -> String {
        match self {
            Self::Unreadable { source, .. } => format!("{self}: {source}"),
            Self::Invalid(problems) => problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        }
    }
}

/// A configuration with the origin of every value.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the daemon obeys.
    pub config: Config,
    /// Every effective value with its source.
    pub settings: Settings,
    /// What is odd but usable.
    pub warnings: Vec<String>,
}

/// The layers below the overrides, read once per start or reload.
#[derive(Clone, Debug, Default)]
pub struct Base {
    file_name: String,
    file: FileLayer,
    environment: EnvironmentLayer,
}

impl Base {
    /// Reads the file (none: built-in values only) and takes the `GOVERNOR_` variables of `environment`.
    ///
    /// # Errors
    /// The file is unreadable or is not what the schema allows.
    pub fn read(path: Option<&Path>, environment: impl Iterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let file_name = path.map(|path| path.display().to_string()).unwrap_or_default();
        let text = match path {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: file_name.clone(), source })?,
            None => String::new(),
        };
        Self::of_text(&file_name, &text, environment)
    }

    /// As [`Self::read`], with the text of a file.
    ///
    /// # Errors
    /// It is not what the schema allows.
    pub fn of_text(
        file_name: &str,
        text: &str,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut file = file::parse(file_name, text).map_err(ConfigError::Invalid)?;
        file.names.extend(schema::built_in_names());
        Ok(Self { file_name: file_name.to_owned(), file, environment: EnvironmentLayer::of(environment) })
    }

    /// Merges with these overrides and resolves.
    ///
    /// # Errors
    /// Every value that is refused, every variable that names no setting, every impossible combination.
    pub fn resolve(&self, overrides: &[Override]) -> Result<Loaded, ConfigError> {
        let mut warnings = Vec::new();
        let environment = &self.environment.variables;
        let sources = Sources { file_name: &self.file_name, file: &self.file, environment, overrides };
        let settings = layers::merge(sources, &mut warnings).map_err(ConfigError::Invalid)?;
        let config = resolve::resolve(&settings, &self.file.names, &mut warnings).map_err(ConfigError::Invalid)?;
        Ok(Loaded { config, settings, warnings })
    }

    /// As [`Self::resolve`], but an override that cannot hold is left out, with a warning that says how to remove it.
    ///
    /// # Errors
    /// File or environment are invalid by themselves.
    pub fn resolve_leniently(&self, overrides: &[Override]) -> Result<Loaded, ConfigError> {
        if let Ok(loaded) = self.resolve(overrides) {
            return Ok(loaded);
        }
        // What is invalid without any override is no override's fault.
        self.resolve(&[])?;
        let (valid, warnings) = self.valid(overrides);
        let mut loaded = self.resolve(&valid)?;
        loaded.warnings.extend(warnings);
        Ok(loaded)
    }

    /// As [`Self::resolve_leniently`], but the override of `key` must hold: it is the one being set.
    ///
    /// # Errors
    /// The override of `key` cannot hold, or file or environment are invalid by themselves.
    pub fn resolve_with(&self, overrides: &[Override], key: &str) -> Result<Loaded, ConfigError> {
        let others: Vec<Override> = overrides.iter().filter(|over| over.key != key).cloned().collect();
        let (mut valid, warnings) = match self.resolve(&others) {
            Ok(_) => (others, Vec::new()),
            Err(_) => {
                self.resolve(&[])?;
                self.valid(&others)
            }
        };
        valid.extend(overrides.iter().filter(|over| over.key == key).cloned());
        let mut loaded = self.resolve(&valid)?;
        loaded.warnings.extend(warnings);
        Ok(loaded)
    }

    /// The overrides that can hold beside those before them, and a warning for each of the others.
    fn valid(&self, overrides: &[Override]) -> (Vec<Override>, Vec<String>) {
        let (mut valid, mut warnings) = (Vec::new(), Vec::new());
        self.add_valid(overrides, &mut valid, &mut warnings);
        (valid, warnings)
    }

    /// Halves what cannot hold until each invalid one stands alone: few of many cost few attempts.
    fn add_valid(&self, overrides: &[Override], valid: &mut Vec<Override>, warnings: &mut Vec<String>) {
        let before = valid.len();
        valid.extend_from_slice(overrides);
        let Err(error) = self.resolve(valid) else { return };
        valid.truncate(before);
        if let [Override { key, value, set_by, set_at }] = overrides {
            warnings.push(format!(
                "override {key} = {value} (by {set_by} at {set_at}) is invalid and not in force: {}; \
                 governorctl unset {key} removes it",
                error.in_one_line()
            ));
        } else if !overrides.is_empty() {
            let (first, second) = overrides.split_at(overrides.len() / 2);
            self.add_valid(first, valid, warnings);
            self.add_valid(second, valid, warnings);
        }
    }

    /// What is ignored on purpose, one line.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.environment.note()
    }

    /// The path of a dotted key as this configuration knows it.
    #[must_use]
    pub fn path_of(&self, key: &str) -> Option<Vec<String>> {
        layers::split(key, &self.file.names)
    }
}

/// The configuration file used when none is named: the packaged place, if there is a file.
#[must_use]
pub fn default_file() -> Option<PathBuf> {
    let path = PathBuf::from("/etc/governor/governor.toml");
    path.exists().then_some(path)
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("  {problem}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(key: String, value: &str) -> Override {
        Override { key, value: value.to_owned(), set_by: "uid 0".to_owned(), set_at: "now".to_owned() }
    }

    #[test]
    fn invalid_overrides_among_many_are_left_out_one_by_one() {
        let keys: String = (0..100).map(|n| format!("[keys.k{n}]\nid = \"{n:032x}\"\n")).collect();
        let base = Base::of_text("f", &keys, std::iter::empty()).unwrap();
        let value = |n: usize| if n % 25 == 3 { "many" } else { "7" };
        let overrides: Vec<Override> = (0..100).map(|n| over(format!("keys.k{n}.cap"), value(n))).collect();
        let loaded = base.resolve_leniently(&overrides).unwrap();
        assert_eq!(loaded.warnings.len(), 4, "{:?}", loaded.warnings);
        assert!(loaded.warnings[0].contains("keys.k3.cap = many"), "{:?}", loaded.warnings);
        let capped = loaded.config.policy.keys.iter().filter(|key| key.entitlement.cap == Some(7)).count();
        assert_eq!(capped, 96);
    }

    #[test]
    fn a_file_that_is_invalid_by_itself_blames_no_override() {
        let base = Base::of_text("f", "[node]\ncap = -1\n", std::iter::empty()).unwrap();
        for overrides in [Vec::new(), vec![over("node.max_parked".to_owned(), "7")]] {
            assert!(base.resolve_leniently(&overrides).unwrap_err().to_string().contains("f:2: node.cap"));
            assert!(base.resolve_with(&overrides, "node.max_parked").is_err());
        }
    }
}
