//! What a decision costs: one acquire + release with 10, 1,000 and 100,000 active keys, and with 100,000 parked
//! requests, under both rules, in CPU time. The baseline of the same run is the least that any per-key limit does: a count up and
//! down in an ordered table of 100,000 keys.

mod cpu_time;
#[expect(dead_code, reason = "shared with what measures memory")]
mod crowd;

use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion};
use crowd::{Crowd, Rule};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

/// With debug assertions only a smoke run makes sense: the engine checks itself in time linear in everything.
const MOST: u32 = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
const ACTIVE: [u32; 3] = [10, 1_000, MOST];

fn main() {
    let mut criterion = Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(50)
        .configure_from_args();
    baseline(&mut criterion);
    for rule in Rule::ALL {
        let mut group = criterion.benchmark_group(rule.name());
        for keys in ACTIVE {
            let mut crowd = Crowd::active(rule, keys);
            group.bench_function(BenchmarkId::new("active", keys), |b| b.iter(|| crowd.acquire_and_release()));
        }
        let mut crowd = Crowd::waiting(rule, MOST);
        group.bench_function(BenchmarkId::new("parked", MOST), |b| b.iter(|| crowd.release_and_wait()));
        group.finish();
    }
    criterion.final_summary();
}

fn baseline(criterion: &mut Criterion<CpuTime>) {
    let keys = u128::from(MOST);
    let spread = |key: u128| key.wrapping_mul(0x2d35_8dcc_aa6c_78a5_8bb8_4b93_962e_acc9);
    let mut counts: BTreeMap<u128, u32> = (0..keys).map(|key| (spread(key), 1)).collect();
    let mut next: u128 = 0;
    criterion.bench_function("baseline", |b| {
        b.iter(|| {
            next = (next + 61_803) % keys;
            for up in [true, false] {
                let count = counts.get_mut(&black_box(spread(next))).expect("every key is there");
                *count = if up { *count + 1 } else { *count - 1 };
            }
        });
    });
}
