//! Clients, without a kernel: what is asked when, and who is told.

use super::*;
use governor_engine::io::Context;

const SESSION: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);

fn socket(cookie: Option<u64>) -> ClientSocket {
    ClientSocket { local: ([10, 0, 0, 1], 80).into(), peer: ([10, 0, 0, 2], 9).into(), cookie }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO.after(Duration::from_millis(ms))
}

/// Makes first questions due.
fn hurry(clients: &mut Clients, now: Instant) {
    clients.ripe.append(&mut clients.young);
    clients.ripe_by = clients.ripe_by.map(|_| now);
}

/// What is asked now, first questions included.
fn asked(clients: &mut Clients, now: Instant) -> Vec<Subject> {
    hurry(clients, now);
    let round = clients.round(now, |_| Some(SESSION), |_| Some(42));
    round.map(|round| round.questions.iter().map(|question| question.of).collect()).unwrap_or_default()
}

fn open(of: Subject, cookie: u64, followed: bool) -> Finding<Subject> {
    Finding { of, gone: false, cookie: Some(cookie), followed }
}

fn gone(of: Subject) -> Finding<Subject> {
    Finding { of, gone: true, cookie: None, followed: false }
}

fn lease(id: u64) -> Watched {
    Watched { session: SESSION, work: Work::Lease(LeaseId(id)) }
}

#[test]
fn a_connection_is_asked_for_then_followed_and_its_end_concerns_every_lease_on_it() {
    let mut clients = Clients::default();
    clients.asked(SESSION, RequestId(1), socket(Some(9)), at(0));
    clients.answered(SESSION, RequestId(1), Some(LeaseId(1)), at(0));
    let connection = Subject::Connection(9, SESSION);
    assert_eq!(asked(&mut clients, at(0)), [connection]);
    clients.asked(SESSION, RequestId(2), socket(Some(9)), at(1));
    assert_eq!(asked(&mut clients, at(1)), [], "one round at a time");
    assert_eq!(clients.found(&[open(connection, 9, true)]), []);
    assert_eq!(asked(&mut clients, at(2)), [], "it is followed by now");
    clients.answered(SESSION, RequestId(2), Some(LeaseId(2)), at(0));
    assert_eq!(asked(&mut clients, at(1000)), [], "nor is it asked for again");
    assert_eq!(clients.closed(&[8, 9, 9]), [lease(1), lease(2)]);
    assert_eq!(clients.counts(), Counts { told: 2, ..Counts::default() });
}

#[test]
fn what_cannot_be_followed_is_asked_for_every_second() {
    let mut clients = Clients::default();
    clients.asked(SESSION, RequestId(1), socket(Some(9)), at(0));
    let connection = Subject::Connection(9, SESSION);
    for second in 0..3 {
        assert_eq!(asked(&mut clients, at(second * 1000)), [connection], "at {second} s");
        assert_eq!(clients.found(&[open(connection, 9, false)]), []);
        assert_eq!(asked(&mut clients, at(second * 1000 + 999)), []);
    }
    assert_eq!(asked(&mut clients, at(3000)), [connection]);
    let request = Watched { session: SESSION, work: Work::Request(RequestId(1)) };
    assert_eq!(clients.found(&[gone(connection)]), [request]);
    assert_eq!(clients.counts(), Counts { found: 1, ..Counts::default() });
}

#[test]
fn what_is_followed_is_asked_for_now_and_then_should_its_end_have_been_missed() {
    let mut clients = Clients::default();
    clients.registered(SESSION, LeaseId(1), socket(Some(9)), at(0));
    let connection = Subject::Connection(9, SESSION);
    asked(&mut clients, at(0));
    clients.found(&[open(connection, 9, true)]);
    let rounds: Vec<_> = (1..=10).map(|second| asked(&mut clients, at(second * 1000)).len()).collect();
    assert_eq!(rounds, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(clients.found(&[gone(connection)]), [lease(1)]);
}

#[test]
fn a_connection_without_a_cookie_gets_it_by_the_first_look() {
    let mut clients = Clients::default();
    clients.asked(SESSION, RequestId(1), socket(None), at(0));
    clients.answered(SESSION, RequestId(1), Some(LeaseId(7)), at(0));
    let unnamed = Subject::Of(Client::Lease(LeaseId(7)));
    assert_eq!(asked(&mut clients, at(0)), [unnamed]);
    assert_eq!(clients.found(&[open(unnamed, 9, true)]), []);
    assert_eq!(clients.counts().followed, 1);
    assert_eq!(clients.closed(&[9]), [lease(7)]);
    // The next one on the same ports may be on another connection.
    clients.registered(SESSION, LeaseId(8), socket(None), at(10));
    let unnamed = Subject::Of(Client::Lease(LeaseId(8)));
    assert_eq!(asked(&mut clients, at(10)), [unnamed]);
    assert_eq!(clients.found(&[gone(unnamed)]), [lease(8)]);
}

#[test]
fn what_ended_meanwhile_is_not_told_of() {
    let mut clients = Clients::default();
    clients.asked(SESSION, RequestId(1), socket(Some(9)), at(0));
    clients.registered(SESSION, LeaseId(3), socket(None), at(0));
    asked(&mut clients, at(0));
    clients.answered(SESSION, RequestId(1), None, at(0));
    clients.ended(LeaseId(3));
    let (connection, unnamed) = (Subject::Connection(9, SESSION), Subject::Of(Client::Lease(LeaseId(3))));
    assert_eq!(clients.found(&[gone(connection), open(unnamed, 8, true)]), []);
    let round = clients.round(at(1), |_| None, |_| None).expect("nothing is followed in vain");
    assert_eq!((round.questions.len(), round.forget.contains(&8)), (0, true));
}

#[test]
fn a_session_names_nobody_elses_connection() {
    let mut clients = Clients::default();
    clients.registered(SESSION, LeaseId(1), socket(Some(9)), at(0));
    clients.registered(OTHER, LeaseId(2), socket(Some(9)), at(0));
    let (one, other) = (Subject::Connection(9, SESSION), Subject::Connection(9, OTHER));
    assert_eq!(asked(&mut clients, at(0)), [one, other]);
    let lied = Watched { session: OTHER, work: Work::Lease(LeaseId(2)) };
    assert_eq!(clients.found(&[open(one, 9, true), gone(other)]), [lied]);
    let round = clients.round(at(1000), |_| Some(SESSION), |_| Some(42));
    assert_eq!(round, None, "it is followed on for the other");
    assert_eq!(clients.closed(&[9]), [lease(1)]);
}

#[test]
fn a_connection_between_two_requests_is_followed_on_for_a_while() {
    let mut clients = Clients::default();
    let connection = Subject::Connection(9, SESSION);
    clients.registered(SESSION, LeaseId(1), socket(Some(9)), at(0));
    asked(&mut clients, at(0));
    clients.found(&[open(connection, 9, true)]);
    clients.ended(LeaseId(1));
    clients.registered(SESSION, LeaseId(2), socket(Some(9)), at(500));
    assert_eq!(asked(&mut clients, at(500)), [], "the next request costs no question");
    clients.ended(LeaseId(2));
    let mut forgotten = Vec::new();
    for second in 1..=20 {
        if let Some(round) = clients.round(at(second * 1000), |_| None, |_| Some(42)) {
            forgotten.extend(round.forget);
            let found: Vec<_> = round.questions.iter().map(|question| open(question.of, 9, true)).collect();
            clients.found(&found);
        }
    }
    assert_eq!((forgotten, clients.counts()), (vec![9], Counts::default()));
    assert_eq!(clients.due(), None, "nothing is left to ask for");
}

#[test]
fn requests_that_are_over_soon_cost_no_question_and_one_that_lasts_costs_one() {
    let mut clients = Clients::default();
    let ask = |clients: &mut Clients, request: u32, ms| {
        clients.asked(SESSION, RequestId(request), socket(Some(9)), at(ms));
        clients.answered(SESSION, RequestId(request), Some(LeaseId(request.into())), at(ms));
    };
    let round = |clients: &mut Clients, ms| clients.round(at(ms), |_| Some(SESSION), |_| Some(42));
    for request in 0..60 {
        ask(&mut clients, request, u64::from(request));
        assert_eq!(round(&mut clients, u64::from(request)), None, "on the connection there is always somebody young");
        clients.ended(LeaseId(request.into()));
    }
    ask(&mut clients, 60, 61);
    assert_eq!((clients.due(), round(&mut clients, 81)), (Some(at(60)), None), "it is young");
    let of =
        |round: Option<Round<Subject>>| round.unwrap().questions.iter().map(|question| question.of).collect::<Vec<_>>();
    let connection = Subject::Connection(9, SESSION);
    assert_eq!(of(round(&mut clients, 101)), [connection]);
    // Over while the kernel is asked: the next request on the connection shares the answer.
    clients.ended(LeaseId(60));
    ask(&mut clients, 61, 102);
    clients.found(&[open(connection, 9, true)]);
    assert_eq!((round(&mut clients, 142), clients.counts().followed), (None, 1));
}

#[test]
fn what_belongs_to_nothing_and_cannot_be_followed_is_dropped_with_the_answer() {
    let mut clients = Clients::default();
    let connection = Subject::Connection(9, SESSION);
    clients.registered(SESSION, LeaseId(1), socket(Some(9)), at(0));
    assert_eq!(asked(&mut clients, at(0)), [connection]);
    clients.ended(LeaseId(1));
    assert_eq!(clients.found(&[open(connection, 9, false)]), []);
    clients.registered(SESSION, LeaseId(2), socket(Some(9)), at(1));
    assert_eq!(asked(&mut clients, at(1)), [connection], "it may be gone by now");
    clients.found(&[open(connection, 9, false)]);
    clients.ended(LeaseId(2));
    let (round, due) = (clients.round(at(1000), |_| None, |_| Some(42)), clients.due());
    assert_eq!((round, due, clients.counts()), (None, None, Counts::default()));
}

#[test]
fn a_proxy_whose_process_is_not_known_is_asked_for_by_cookie_only() {
    let mut clients = Clients::default();
    clients.asked(SESSION, RequestId(1), socket(None), at(0));
    hurry(&mut clients, at(0));
    assert_eq!(clients.round(at(0), |_| None, |_| None), None);
    clients.asked(SESSION, RequestId(2), socket(Some(9)), at(0));
    hurry(&mut clients, at(0));
    let round = clients.round(at(0), |_| None, |_| None).unwrap();
    assert_eq!((round.questions.len(), round.questions[0].proxy), (1, None));
    clients.found(&[]);
    for request in [1, 2].map(RequestId) {
        let context = Context { session: SESSION, ..Context::default() };
        clients.take(&Output::Unparked { context, request, end: WaitEnd::Gone, waited: Duration::ZERO });
    }
    clients.round(at(1000), |_| None, |_| None);
    assert_eq!(clients.counts(), Counts::default());
}
