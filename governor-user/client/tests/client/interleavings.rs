//! Any order of polling, dropping and answering: whatever the service, its body, the daemon and the connection do in
//! between, every granted lease comes back exactly once, and not before its work has ended.

mod books;
mod flight;

use books::{Answer, Daemon};
use flight::{Flight, Script, Step, scripted};
use governor_client::tower::GovernorLayer;
use governor_client::{Config, Governor};
use proptest::prelude::*;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::yield_now;

/// Requests under way at a time.
const FLIGHTS: usize = 6;

/// Turns of the runtime within which everything that is on its way arrives.
const TURNS: usize = 20_000;

#[derive(Clone, Debug)]
enum Action {
    /// A request begins in this place, if it is free.
    Begin(usize, Script),
    /// Its future or body is polled once.
    Poll(usize),
    /// Its future or body is dropped.
    Drop(usize),
    /// Whoever handles it takes the lease over, or lets go of what was taken.
    Take(usize),
    LetGo(usize),
    /// The daemon answers one of the requests it knows.
    Answer(usize, Answer),
    /// Everything that is on its way arrives.
    Settle,
    /// The connection to the daemon breaks and is made anew.
    Break,
}

fn action() -> impl Strategy<Value = Action> {
    let place = 0..FLIGHTS;
    let answer = prop_oneof![4 => Just(Answer::Grant), 1 => Just(Answer::Park), 1 => Just(Answer::Shed)];
    prop_oneof![
        6 => (place.clone(), scripts()).prop_map(|(place, script)| Action::Begin(place, script)),
        16 => place.clone().prop_map(Action::Poll),
        4 => place.clone().prop_map(Action::Drop),
        1 => place.clone().prop_map(Action::Take),
        1 => place.prop_map(Action::LetGo),
        8 => (0..FLIGHTS, answer).prop_map(|(nth, answer)| Action::Answer(nth, answer)),
        6 => Just(Action::Settle),
        1 => Just(Action::Break),
    ]
}

fn scripts() -> impl Strategy<Value = Script> {
    let step = prop_oneof![
        4 => Just(Step::Data),
        3 => Just(Step::Wait),
        1 => Just(Step::Trailers),
        1 => Just(Step::Fail),
        1 => Just(Step::Panic),
    ];
    let handler = prop_oneof![6 => Just(Step::Data), 1 => Just(Step::Fail), 1 => Just(Step::Panic)];
    (0_u8..3, handler, prop::collection::vec(step, 0..5), any::<bool>())
        .prop_map(|(waits, handler, body, knows_its_end)| Script { waits, handler, body, knows_its_end })
}

fn cases() -> u32 {
    if std::env::var_os("GOVERNOR_FULL").is_some() { 4_000 } else { 100 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_time: 30_000, ..ProptestConfig::default() })]

    #[test]
    fn every_grant_comes_back_exactly_once_in_any_order_of_polls_and_drops(
        actions in prop::collection::vec(action(), 1..80),
    ) {
        // Sees sockets at every turn, so that few turns suffice.
        let runtime = Builder::new_current_thread().enable_all().event_interval(1).build().unwrap();
        runtime.block_on(play(actions));
    }
}

async fn play(actions: Vec<Action>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("proxy.sock");
    let daemon = Daemon::start(&socket);
    let governor = Governor::start(Config { patience: Duration::from_secs(600), ..Config::new(&socket) });
    let layer = GovernorLayer::new(governor.clone(), "chat");
    let mut flights: Vec<Flight> = (0..FLIGHTS).map(|_| Flight::over()).collect();
    for action in actions {
        match action {
            Action::Begin(place, script) if flights[place].is_over() => {
                let (service, lease) = scripted(&layer, script);
                flights[place] = Flight::begin(service, lease);
            }
            Action::Begin(..) => {}
            Action::Poll(place) => flights[place].poll().await,
            Action::Drop(place) => flights[place].end(),
            Action::Take(place) => flights[place].take(),
            Action::LetGo(place) => flights[place].let_go(),
            Action::Answer(nth, answer) => daemon.answer(nth, answer),
            Action::Settle => settle(&daemon, &mut flights).await,
            Action::Break => {
                daemon.hang_up();
                settle(&daemon, &mut flights).await;
            }
        }
    }
    settle(&daemon, &mut flights).await;
    for flight in &mut flights {
        flight.end();
        flight.let_go();
    }
    settle(&daemon, &mut flights).await;
    let gone = || {
        let stats = governor.stats();
        daemon.in_flight() == 0 && (stats.leases, stats.waiting, stats.queued) == (0, 0, 0)
    };
    until(gone, || format!("{:?} and {} in flight", governor.stats(), daemon.in_flight())).await;
    daemon.audit();
}

/// Waits until the daemon counts exactly the leases whose work goes on.
async fn settle(daemon: &Daemon, flights: &mut [Flight]) {
    let agrees = || flights.iter().all(|flight| flight.lease().is_none_or(|(id, held)| daemon.is_live(id) == held));
    let leases = || format!("{:?}", flights.iter().filter_map(Flight::lease).collect::<Vec<_>>());
    // What crosses the check itself: some turns first.
    for _ in 0..16 {
        yield_now().await;
    }
    until(|| daemon.is_connected() && agrees(), leases).await;
}

async fn until(condition: impl Fn() -> bool, shown: impl Fn() -> String) {
    for _ in 0..TURNS {
        if condition() {
            return;
        }
        yield_now().await;
    }
    // A session that broke is made anew after a pause, which no number of turns makes sure of.
    super::peer::eventually(&shown(), condition).await;
}
