//! What a lease and a key take in memory, and what a grant allocates: one JSON object on standard output.

mod counting;
#[expect(dead_code, reason = "shared with the benchmark of time")]
mod crowd;

use counting::{Counting, bytes, calls};
use crowd::{Crowd, Rule};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// With debug assertions only a smoke run makes sense: the engine checks itself, and the checks allocate.
const SCALE: u32 = if cfg!(debug_assertions) { 50 } else { 1 };
const LEASES: u32 = 100_000 / SCALE;
const WARM_UP: u32 = 200_000 / SCALE;
const GRANTS: u32 = 100_000 / SCALE;

fn main() {
    let figures = format!(
        "{{\"lease_bytes\": {}, \"key_bytes\": {}, \"allocations_per_grant\": {}}}",
        per_lease(LEASES),
        per_lease_of_its_own_key(LEASES) - per_lease(LEASES),
        allocations(),
    );
    #[expect(clippy::print_stdout, reason = "the program's result")]
    {
        println!("{figures}");
    }
}

/// Bytes of one of so many leases that a few keys hold.
fn per_lease(leases: u32) -> i64 {
    footprint(|| Crowd::holding(leases, 10)) / i64::from(leases)
}

fn per_lease_of_its_own_key(leases: u32) -> i64 {
    footprint(|| Crowd::holding(leases, leases)) / i64::from(leases)
}

fn footprint(make: impl FnOnce() -> Crowd) -> i64 {
    let before = bytes();
    let crowd = make();
    let took = bytes() - before;
    drop(crowd);
    took
}

/// Allocations per grant in the worse of both rules, once warm.
fn allocations() -> f64 {
    let worst = Rule::ALL.map(|rule| {
        let mut crowd = Crowd::active(rule, 1_000);
        (0..WARM_UP).for_each(|_| crowd.acquire_and_release());
        let before = calls();
        (0..GRANTS).for_each(|_| crowd.acquire_and_release());
        let active = calls() - before;
        let mut waiting = Crowd::waiting(rule, 1_000);
        (0..WARM_UP).for_each(|_| waiting.release_and_wait());
        let before = calls();
        (0..GRANTS).for_each(|_| waiting.release_and_wait());
        active.max(calls() - before)
    });
    let most = u32::try_from(worst.into_iter().max().unwrap_or(0)).unwrap_or(u32::MAX);
    f64::from(most) / f64::from(GRANTS)
}
