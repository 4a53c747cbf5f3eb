//! A configuration file of any text: accepted, or refused with problems that all have a place and words. What is accepted
//! makes an engine.

use super::outcome;
use governor_engine::Engine;
use governor_user::config::{Base, ConfigError};

pub(crate) fn hold(bytes: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(bytes);
    let loaded = Base::of_text("f", &text, std::iter::empty()).and_then(|base| base.resolve(&[]));
    let seen = match loaded {
        Ok(loaded) => {
            Engine::new(loaded.config.policy, 1).expect("what the configuration accepts the engine obeys");
            vec![format!("accepted with {} warnings", loaded.warnings.len())]
        }
        Err(ConfigError::Unreadable { .. }) => panic!("no file was read"),
        Err(ConfigError::Invalid(problems)) => {
            assert!(!problems.is_empty(), "refused without a problem");
            assert!(problems.iter().all(|problem| !problem.place.is_empty() && !problem.message.is_empty()));
            problems.iter().map(|problem| without_numbers(&problem.message)).collect()
        }
    };
    outcome(&seen)
}

/// The kind of problem: what it says without what is quoted from the file and without numbers.
fn without_numbers(message: &str) -> String {
    let unquoted = message.split('"').step_by(2).collect::<String>();
    unquoted.chars().filter(|c| c.is_ascii_alphabetic() || *c == ' ').take(40).collect()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let file = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../governor-user/dist/governor.toml"));
    // Every setting, taken out of its comment, in pieces short enough to change.
    let settings = file.unwrap().replace("\n# ", "\n");
    let small = "[pools.chat]\nfair_share = 80\nmax_wait = \"30s\"\n[[pools.chat.members]]\nname = \"m1\"\nslots = 8\n";
    let classes = "[node]\ncap = 100\ndefault_class = \"a\"\n[classes.a]\ncap = 10\nweight = 2\n[keys.team]\nkey = \
                   \"00000000000000000000000000000001\"\nclass = \"a\"\n";
    let mut seeds = vec![small.into(), classes.into(), format!("{classes}{small}").into_bytes()];
    seeds.extend(settings.as_bytes().chunks(1500).map(<[u8]>::to_vec));
    seeds
}
