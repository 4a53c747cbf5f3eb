//! What operators order for members and for the node, as they see it.

use crate::transcript::of;
use crate::world::{busy, quiet};

#[test]
fn a_member_is_taken_out_seen_and_put_back() {
    let daemon = quiet();
    insta::assert_snapshot!(of(&daemon, &["member", "chat/account-2", "drain", "--reason", "key rotation"]), @"member chat/account-2 is draining, it was up; 0 in flight");
    insta::assert_snapshot!(of(&daemon, &["member", "chat/account-1", "cool", "--for", "2h"]), @"member chat/account-1 is cooling, TIME more, it was up; 0 in flight");
    insta::assert_snapshot!(of(&daemon, &["members"]), @"
    POOL  MEMBER  STATE  IN FLIGHT  SLOTS  RESERVE  CAUSE  BY  REASON
    chat  account-1  cooling, TIME more  0  2  1  operator  uid UID  -
    chat  account-2  draining  0  2  1  operator  uid UID  key rotation
    ");
    insta::assert_snapshot!(of(&daemon, &["member", "chat/account-2", "up"]), @"
    member chat/account-2 is draining, it was draining; 0 in flight
    note: it is drained and takes nothing: governorctl member chat/account-2 undrain
    ");
    insta::assert_snapshot!(of(&daemon, &["member", "chat/account-2", "undrain"]), @"member chat/account-2 is up, it was draining; 0 in flight");
    insta::assert_snapshot!(of(&daemon, &["member", "chat/account-1", "up"]), @"member chat/account-1 is up, it was cooling, TIME more; 0 in flight");
    insta::assert_snapshot!(of(&daemon, &["members", "--pool", "chat"]), @"
    POOL  MEMBER  STATE  IN FLIGHT  SLOTS  RESERVE  CAUSE  BY  REASON
    chat  account-1  up  0  2  1  -  -  -
    chat  account-2  up  0  2  1  -  -  -
    ");
    daemon.wait_for("/v1/events?last_seconds=600", |events| events.as_array().unwrap().len() == 5);
    insta::assert_snapshot!(of(&daemon, &["events"]), @"
    WHEN  WHO  WHAT  SUBJECT  BEFORE  AFTER  REASON
    DATE  uid UID  member-drain  chat/account-2  up  draining, operator  key rotation
    DATE  uid UID  member-cool  chat/account-1  up  cooling for 7200 s, operator  -
    DATE  uid UID  member-up  chat/account-2  draining, operator  draining, operator  -
    DATE  uid UID  member-undrain  chat/account-2  draining, operator  up  -
    DATE  uid UID  member-up  chat/account-1  cooling for 7200 s, operator  up  -
    ");
}

#[test]
fn a_wrong_member_is_named_with_those_there_are() {
    let daemon = quiet();
    insta::assert_snapshot!(of(&daemon, &["member", "chat/account-9", "up"]), @r#"
    governorctl: no member "account-9" in a pool "chat"; the members are: chat/account-1, chat/account-2
    (exit code 1)
    "#);
    insta::assert_snapshot!(of(&daemon, &["member", "account-1", "up"]), @r#"
    error: invalid value 'account-1' for '<POOL/NAME>': expected a pool and a member, POOL/NAME, found "account-1"

    For more information, try '--help'.
    (exit code 2)
    "#);
    insta::assert_snapshot!(of(&daemon, &["members", "--pool", "nosuch"]), @r#"
    governorctl: no pool named "nosuch"; the pools are: chat
    (exit code 1)
    "#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_names_what_is_left_and_can_be_undone() {
    let busy = busy().await;
    insta::assert_snapshot!(of(&busy.daemon, &["drain", "--reason", "new kernel"]), @"
    draining: 2 leases are left; end it with governorctl drain --undo

    the longest:
    LEASE  POOL  MEMBER  KEY  KIND  SESSION  AGE  IDLE  EXPIRES IN  LABEL  ASKED AT
    l-ID  chat  account-1  KEY…  ordinary  s-1  TIME  -  TIME  batch  chat.rs:7
    l-ID  chat  account-2  KEY…  ordinary  s-1  TIME  -  TIME  batch  chat.rs:7
    ");
    let status = of(&busy.daemon, &["status"]);
    let line = status.lines().find(|line| line.starts_with("drain ")).unwrap_or_else(|| panic!("{status}"));
    assert!(line.contains("by uid UID (new kernel): new requests are refused, 2 leases are left"), "{line}");
    insta::assert_snapshot!(of(&busy.daemon, &["drain", "--undo"]), @"not draining: requests are granted again");
    insta::assert_snapshot!(of(&busy.daemon, &["drain", "--wait", "--undo"]), @"
    error: the argument '--wait' cannot be used with '--undo'

    Usage: governorctl drain --wait --socket <PATH>

    For more information, try '--help'.
    (exit code 2)
    ");
}
