//! The scenarios of `tests/scenarios`: every policy's figures fall into the bands that the scenario states.

use governor_engine::io::Output;
use support::workload::{Choice, Workload};

#[test]
fn every_workload_falls_into_its_bands() {
    let mut misses = vec![];
    for workload in Workload::all() {
        for run in &workload.run {
            let figures = workload.simulate(run.policy).figures;
            let name = format!("{}, {}", workload.name, run.policy.name());
            println!(
                "{name}: {figures:?}",
                figures = support::workload::Figures { light_waits: vec![], samples: vec![], ..figures.clone() }
            );
            misses.extend(run.misses(&figures).into_iter().map(|miss| format!("{name}: {miss}")));
        }
    }
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}

#[test]
fn observing_changes_no_order() {
    for workload in Workload::all().iter().filter(|workload| ["incident", "mixed"].contains(&workload.name.as_str())) {
        let (off, observe) = (workload.simulate(Choice::Off), workload.simulate(Choice::Observe));
        assert!(observe.figures.would_have > 0 && off.figures.would_have == 0, "{}", workload.name);
        assert_eq!(off.orders.len(), observe.orders.len(), "{}", workload.name);
        for (off, observe) in off.orders.iter().zip(&observe.orders) {
            match (off, observe) {
                // The numbers of a decision speak of the rule that is set; everything else is the same.
                (Output::Refused { request: a, decision: d }, Output::Refused { request: b, decision: e }) => {
                    assert_eq!((a, d.id, d.reason, d.retry_after), (b, e.id, e.reason, e.retry_after));
                }
                _ => assert_eq!(off, observe),
            }
        }
    }
}
