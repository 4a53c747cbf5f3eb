//! Who gets a slot when many want one.

use crate::world::{World, is_parked, policy};
use governor_engine::id::RequestId;
use governor_engine::io::Output;
use governor_engine::time::Duration;

#[test]
fn exactly_one_of_many_is_admitted_one_below_the_share() {
    let mut world = World::new(policy(&[10]));
    for _ in 0..4 {
        world.held_for(1);
        world.held_for(2);
    }
    let granted = (0..5).filter(|_| !is_parked(&world.ask_for(1))).count();
    assert_eq!(granted, 1);
}

#[test]
fn time_alone_gives_no_slot_back_and_the_light_key_gets_the_next_one() {
    let mut world = World::new(policy(&[4]));
    let held: Vec<_> = (0..4).map(|_| world.held_for(1)).collect();
    assert!(world.at(2_000).is_empty());
    assert!(is_parked(&world.ask_for(1)));
    assert!(is_parked(&world.ask_for(2)));
    world.at(20_000);
    assert_eq!(world.in_flight(), 4);

    let woken = world.release(held[0]);
    let Some(Output::Began(grant)) = woken.first() else { panic!("{woken:?}") };
    assert_eq!((grant.request, grant.waited), (RequestId(6), Duration::from_secs(18)));
}
