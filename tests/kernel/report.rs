//! Says what the kernel plane reached here, for people and for `cargo xtask vm`, which reads these lines.

use governor_kernel as kernel;
use governor_kernel::Options;
use governor_observation::Tier;

#[test]
fn the_tier_and_every_hook_are_reported() {
    let _machine = support::alone();
    let plane = kernel::spawn(Options::default()).unwrap();
    let seen = plane.observations().borrow().clone();
    println!("TIER {}", seen.tier);
    for line in &seen.degraded {
        println!("DEGRADED {}", one_line(line));
    }
    for hook in &seen.hooks {
        let Some(event) = hook.event else { continue };
        let reached = hook.tier().map_or("no", Tier::as_str);
        let said = if hook.active { &hook.note } else { &hook.lost_without };
        println!("HOOK\t{}\t{}\t{reached}\t{}", event.as_str(), one_line(&hook.hook), one_line(said));
        for tried in hook.candidates.iter().filter(|candidate| !candidate.fires) {
            println!("TRIED\t{}\t{}\t{}", event.as_str(), one_line(&tried.hook), one_line(&tried.reason));
        }
    }
    assert!(!seen.hooks.is_empty());
}

/// A line has one meaning, whatever the kernel said.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
