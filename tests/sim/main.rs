//! The engine in simulated time. `history` compares it with the reference model on generated histories; `incident`
//! replays the production incident. `SIM_STEPS` and `SIM_SEED` scale and replay the first.

mod history;
mod incident;
mod model;
mod rng;

use governor_engine::io::Output;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn engine_and_reference_agree_on_generated_histories() {
    history::run(number("SIM_SEED", 1), number("SIM_STEPS", 200_000));
}

fn the_incident() -> incident::Scenario {
    toml::from_str(include_str!("../scenarios/incident.toml")).expect("the scenario is sound")
}

#[test]
fn the_incident_falls_into_its_bands() {
    let scenario = the_incident();
    for run in &scenario.run {
        let (figures, _) = scenario.replay(run.mode);
        println!("{}: {figures:?}", run.name);
        let failed = 100.0 * f64::from(figures.light_failed) / f64::from(figures.light_requests);
        let within = |what: &str, value: f64, [low, high]: [f64; 2]| {
            assert!((low..=high).contains(&value), "{}: {what} is {value}, not within {low}-{high}", run.name);
        };
        within("light_failed_percent", failed, run.light_failed_percent);
        within("light_requests", f64::from(figures.light_requests), run.light_requests.map(f64::from));
        within("utilisation_percent", figures.utilisation_percent, run.utilisation_percent);
        if run.mode == incident::Setting::Enforce {
            assert_eq!(figures.light_tries, figures.light_requests, "light keys never retry");
        }
    }
}

#[test]
fn observing_the_incident_changes_no_order() {
    let scenario = the_incident();
    let (off, off_orders) = scenario.replay(incident::Setting::Off);
    let (observe, observe_orders) = scenario.replay(incident::Setting::Observe);
    assert!(observe.would_have > 0 && off.would_have == 0);
    assert_eq!(incident::Figures { would_have: 0, ..observe }, off);
    assert!(off_orders.len() == observe_orders.len());
    for (off, observe) in off_orders.iter().zip(&observe_orders) {
        match (off, observe) {
            // The numbers of a decision speak of the rule that is set; everything else is the same.
            (Output::Shed { request: a, decision: d, .. }, Output::Shed { request: b, decision: e, .. }) => {
                assert_eq!((a, d.id, d.reason, d.retry_after), (b, e.id, e.reason, e.retry_after));
            }
            _ => assert_eq!(off, observe),
        }
    }
}
