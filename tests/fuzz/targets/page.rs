//! A signal page of any bytes: every way to read it ends, agrees with the others, and stays within the bounds it states.

use super::outcome;
use governor_common::signal::{PAGE_POOLS, PAGE_SIZE, Page, Unreadable};

pub(crate) fn hold(bytes: &[u8]) -> u64 {
    let page = Page::from_bytes(&filled(bytes));
    let (whole, overload) = (page.read(), page.overload());
    assert_eq!(whole.as_ref().map(|signals| signals.overload).map_err(|why| *why), overload);
    let seen = match whole {
        Ok(signals) => {
            assert!(signals.pools.len() <= PAGE_POOLS && signals.overload.pressure <= 1000);
            for pool in &signals.pools {
                let first = signals.pools.iter().find(|other| other.hash == pool.hash).copied();
                assert_eq!(page.pool(pool.hash), Ok(first), "a pool is found by its hash");
            }
            (signals.pools.len(), signals.overload.level.as_str(), signals.draining)
        }
        Err(Unreadable::Busy) => {
            assert_eq!(page.pool(0), Err(Unreadable::Busy));
            (0, "busy", false)
        }
        Err(Unreadable::Nonsense) => (0, "nonsense", false),
    };
    outcome(&seen)
}

/// The input over and over, so that a short one fills a page.
fn filled(bytes: &[u8]) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    for (to, from) in page.iter_mut().zip(bytes.iter().cycle()) {
        *to = *from;
    }
    page
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut written = b"governor\x01\0\0\0\x01\0\0\0".to_vec();
    written.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    written.extend_from_slice(&[3, 1, 0xe8, 3, 7, 0, 0, 0, 0xd0, 7, 0, 0, 2, 0, 0, 0]);
    written.resize(128, 5);
    written.resize(PAGE_SIZE, 0);
    vec![vec![0], written]
}
