//! The engine in simulated time. `history` compares it with the reference model on generated histories; `workloads` runs
//! the scenarios of `tests/scenarios`, the production incident among them; `properties` says what must hold whatever
//! happens. `SIM_STEPS` and `SIM_SEED` scale and replay
//! the first.

mod history;
mod model;
mod properties;
mod workloads;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn engine_and_reference_agree_on_generated_histories() {
    history::run(number("SIM_SEED", 1), number("SIM_STEPS", 200_000));
}
