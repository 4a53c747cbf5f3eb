//! The number of a run: it goes into the upper bits of lease and decision ids, so that an id of another run never names
//! something of this one.

use crate::state::{EPOCH, StateDir};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The number of this run, 1 to 65,535: one more than the last run's. Where that is unknown or cannot be stored, a random
/// one that is not among `taken`, the runs whose leases still count.
#[must_use]
pub(crate) fn next(state: &StateDir, taken: &BTreeSet<u16>) -> u16 {
    let parse = |bytes: &[u8]| {
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse::<u16>().ok());
        number.filter(|number| *number != 0).ok_or_else(|| "it is no number from 1 to 65535".to_owned())
    };
    let next = match state.load_with(EPOCH, parse) {
        // 0 stands for "no lease" on the wire, so no epoch is 0.
        Some(last) => last.checked_add(1).unwrap_or(1),
        None if state.is_new() => 1,
        None => random(taken),
    };
    match state.store_now(EPOCH, format!("{next}\n").as_bytes()) {
        Ok(()) => next,
        Err(error) => {
            // The next start would take the same number.
            tracing::error!(folder = %state.path().display(), %error, "the state folder cannot be written: the number of this run is random");
            random(taken)
        }
    }
}

fn random(taken: &BTreeSet<u16>) -> u16 {
    // The only random numbers of the daemon: the keys of the standard hasher.
    let first = RandomState::new().build_hasher().finish();
    let candidates = (0..=u64::from(u16::MAX)).filter_map(|step| u16::try_from(first.wrapping_add(step) & 0xffff).ok());
    candidates.into_iter().find(|number| *number != 0 && !taken.contains(number)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_counts_on_and_skips_zero() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        assert_eq!([next(&state, &BTreeSet::new()), next(&state, &BTreeSet::new())], [1, 2]);
        std::fs::write(folder.path().join("epoch"), "65535\n").unwrap();
        assert_eq!(next(&state, &BTreeSet::new()), 1);
    }

    #[test]
    fn an_unknown_number_is_never_one_in_use() {
        let folder = tempfile::tempdir().unwrap();
        // All but one are in use.
        let taken: BTreeSet<u16> = (1..=u16::MAX).filter(|number| *number != 4711).collect();
        for damage in ["", "0", "-1", "70000", "one"] {
            std::fs::write(folder.path().join("epoch"), damage).unwrap();
            let state = StateDir::open(folder.path()).unwrap();
            assert_eq!(next(&state, &taken), 4711, "{damage:?}");
            assert_eq!(state.damaged().len(), 1);
        }
        std::fs::remove_file(folder.path().join("epoch")).unwrap();
        assert_eq!(next(&StateDir::open(folder.path()).unwrap(), &taken), 4711);
        // A number that cannot be stored would be taken again by the next run.
        let state = StateDir::open(folder.path()).unwrap();
        std::fs::create_dir_all(folder.path().join("epoch.new/x")).unwrap();
        assert_eq!(next(&state, &taken), 4711);
    }
}
