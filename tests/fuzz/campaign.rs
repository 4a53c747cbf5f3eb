//! Runs a target over its corpus and over changed inputs. A target says what it saw as a number: an input that makes it
//! see something new is kept and changed further, so that the search goes deeper without instrumentation.

use crate::mutate::mutate;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::random::Random;

/// Changed inputs in a normal run.
const INPUTS: u32 = 2_000;

/// How long a campaign is.
const CAMPAIGN: Duration = Duration::from_secs(60);

/// Longest input in bytes.
const LONGEST: usize = 4096;

/// Inputs kept in memory, and files of a target in the repository.
const POPULATION: usize = 2_000;
const FILES: usize = 60;

/// Longest input worth a file.
const LONGEST_FILE: usize = 512;

/// One target over everything. `seeds` are good inputs, which stay true to the code because the code makes them.
pub(crate) fn run(name: &str, target: fn(&[u8]) -> u64, seeds: &[Vec<u8>]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut corpus = committed(&folder);
    let bless = is_set("GOVERNOR_BLESS");
    assert!(bless || !corpus.is_empty(), "{} has no files", folder.display());
    let mut population = seeds.to_vec();
    population.extend(corpus.iter().cloned());
    let mut seen: BTreeSet<u64> = population.iter().map(|input| guarded(name, target, input)).collect();

    let full = is_set("GOVERNOR_FULL");
    let seed = if full { std::process::id().into() } else { 1 };
    let mut random = Random::new(seed);
    let end = Instant::now() + CAMPAIGN;
    let mut inputs = 0_u64;
    while if full { Instant::now() < end } else { inputs < INPUTS.into() } {
        inputs += 1;
        let input = mutate(&mut random, &population, LONGEST);
        if seen.insert(guarded(name, target, &input)) && population.len() < POPULATION {
            if bless && corpus.len() < FILES && input.len() <= LONGEST_FILE {
                keep(&folder, &input);
                corpus.push(input.clone());
            }
            population.push(input);
        }
    }
    #[expect(clippy::print_stdout, reason = "libtest captures it; it tells how far a campaign came")]
    {
        println!("{name}: {inputs} inputs from seed {seed}, {} different outcomes", seen.len());
    }
}

/// Runs the target; an input that breaks it is written down before the test fails.
fn guarded(name: &str, target: fn(&[u8]) -> u64, input: &[u8]) -> u64 {
    match catch_unwind(AssertUnwindSafe(|| target(input))) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let folder = std::env::temp_dir().join("governor-fuzz").join(name);
            let path = keep(&folder, input);
            #[expect(clippy::print_stdout, reason = "libtest shows it for the test that failed")]
            {
                println!("{name} fails on {}: when it is mended, put it into the corpus", path.display());
            }
            resume_unwind(panic)
        }
    }
}

/// The committed inputs, each once.
fn committed(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let inputs: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(inputs.iter().collect::<BTreeSet<_>>().len(), inputs.len(), "{} has twins", folder.display());
    inputs
}

fn keep(folder: &Path, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(format!("{:016x}", hasher.finish()));
    fs::write(&path, input).unwrap();
    path
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value == "1")
}
