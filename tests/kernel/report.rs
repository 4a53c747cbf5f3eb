//! Says what the kernel plane reached here, for people and for `cargo xtask vm`, which reads these lines.

use governor_user::kernel::{self, Options};

#[test]
fn the_tier_and_every_hook_are_reported() {
    let plane = kernel::spawn(Options::default()).unwrap();
    let seen = plane.observations().borrow().clone();
    println!("TIER {}", seen.tier);
    for line in &seen.degraded {
        println!("DEGRADED {}", one_line(line));
    }
    for hook in &seen.hooks {
        let state = if hook.active { "active" } else { "inactive" };
        // A purpose has spaces in it.
        println!("HOOK\t{}\t{}\t{state}\t{}", one_line(&hook.purpose), one_line(&hook.hook), one_line(&hook.note));
    }
    assert!(!seen.hooks.is_empty());
}

/// A line has one meaning, whatever the kernel said.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
