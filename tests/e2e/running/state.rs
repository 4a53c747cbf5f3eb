//! The state folder: damaged files, a second daemon, and orders given while the disk takes nothing.

use crate::world::pool;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::programs::daemon::{Daemon, Setup};

const FILES: [&str; 8] =
    ["bypass.json", "drain.json", "epoch", "keys.json", "leases.json", "members.json", "overrides.json", "tuner.json"];

/// A user that no file of the tests belongs to.
const STRANGER: u32 = 65533;

fn is_root() -> bool {
    if !rustix::process::geteuid().is_root() {
        support::skip("files of other users and private disks need root");
        return false;
    }
    true
}

/// Everything that is wrong by the state folder's own findings: file and what was said.
fn damaged(daemon: &Daemon) -> Vec<(String, String)> {
    let status = daemon.get("/v1/status");
    let found = status["state"]["damaged"].as_array().unwrap();
    found.iter().map(|one| (one["file"].as_str().unwrap().into(), one["why"].as_str().unwrap().into())).collect()
}

fn remove(path: &Path) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn no_damage_of_any_state_file_stops_a_start() {
    if !is_root() {
        return;
    }
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("it is empty", |path| fs::write(path, "").unwrap()),
        ("not readable", |path| fs::write(path, "[{\"key\":").unwrap()),
        ("not readable", |path| fs::write(path, [0xff, 0xfe, 0]).unwrap()),
        ("a symbolic link", |path| symlink("/etc/passwd", path).unwrap()),
        ("not a regular file", |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())),
        ("belongs to uid 65533", |path| {
            fs::write(path, "[]").unwrap();
            chown(path, Some(STRANGER), None).unwrap();
        }),
        ("a folder", |path| fs::create_dir(path).unwrap()),
    ];
    let mut daemon = Setup::new(&pool(1, 1, "")).start();
    let mut epochs = vec![daemon.get("/v1/status")["epoch"].clone()];
    for (said, damage) in damages {
        daemon.kill();
        for file in FILES {
            let path = daemon.state_dir().join(file);
            remove(&path);
            damage(&path);
        }
        daemon.restart().unwrap();
        let found = damaged(&daemon);
        for file in FILES {
            let why = &found.iter().find(|(name, _)| name == file).unwrap_or_else(|| panic!("{file}: {found:?}")).1;
            assert!(why.contains(said), "{file}: {why}");
        }
        let doctor = daemon.get("/v1/doctor").to_string();
        assert!(doctor.contains("state epoch") && doctor.contains(".damaged-"), "{doctor}");
        assert!(daemon.log().contains("is not used: it"), "{}", daemon.log());
        epochs.push(daemon.get("/v1/status")["epoch"].clone());
        let (status, answer) = daemon.request("POST", "/v1/bypass", Some(&json!({ "on": false })));
        assert_eq!((status, &answer["warning"]), (200, &Value::Null), "what is written again works: {answer}");
    }
    assert!(epochs[1..].iter().all(|epoch| *epoch != epochs[0]), "no run is mistaken for another: {epochs:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_set_aside() {
    if !is_root() {
        return;
    }
    let own = "mkdir -p $GOVERNOR_DAEMON_STATE_DIR && chmod 700 $GOVERNOR_DAEMON_STATE_DIR && \
               chown 65533 $GOVERNOR_DAEMON_STATE_DIR $(dirname $GOVERNOR_DAEMON_STATE_DIR) && \
               exec setpriv --reuid=65533 --clear-groups";
    let mut daemon = Setup::new("").tier("procfs").within(own).start();
    daemon.kill();
    for file in FILES {
        let path = daemon.state_dir().join(file);
        remove(&path);
        fs::write(&path, "[]").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    daemon.restart().unwrap();
    let found = damaged(&daemon);
    assert_eq!(found.len(), FILES.len(), "{found:?}");
    assert!(found.iter().all(|(_, why)| why.contains("cannot be read: Permission denied")), "{found:?}");
}

#[test]
fn a_bad_override_is_listed_as_invalid_and_can_be_removed() {
    let mut daemon = Setup::new(&pool(1, 4, "")).start();
    daemon.kill();
    let over = |key: &str, value: &str| json!({ "key": key, "value": value, "set_by": "uid 0", "set_at": "2026" });
    let all = json!([over("node.cap", "minus one"), over("node.max_parked", "7"), over("no.such.key", "1")]);
    fs::write(daemon.state_dir().join("overrides.json"), all.to_string()).unwrap();
    let keys = json!([{ "key": "not hexadecimal", "setting": {}, "set_by": "uid 0", "set_at": "2026" }]);
    fs::write(daemon.state_dir().join("keys.json"), keys.to_string()).unwrap();
    daemon.restart().unwrap();
    let status = daemon.get("/v1/status");
    assert_eq!((&status["node"]["cap"], &status["node"]["max_parked"]), (&json!(1000), &json!(7)));
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("override node.cap = minus one (by uid 0 at 2026) is invalid"), "{warnings}");
    assert!(warnings.contains("no.such.key"), "{warnings}");
    assert!(daemon.get("/v1/overrides")[0]["invalid"].as_str().is_some());
    // A valid one can be set beside it, and both invalid ones removed.
    for (method, key, body) in [
        ("PUT", "node.max_parked", Some(json!({ "value": 8 }))),
        ("DELETE", "node.cap", None),
        ("DELETE", "no.such.key", None),
    ] {
        let (status, answer) = daemon.request(method, &format!("/v1/settings/{key}"), body.as_ref());
        assert_eq!(status, 200, "{method} {key}: {answer}");
    }
    daemon.restart().unwrap();
    let status = daemon.get("/v1/status");
    assert_eq!((&status["warnings"], &status["node"]["max_parked"]), (&json!([]), &json!(8)));
}

/// The state folder of a daemon with a disk of its own.
fn disk(daemon: &Daemon) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}", daemon.pid(), daemon.state_dir().display()))
}

/// A daemon whose state folder is a disk of 64 KiB.
fn on_a_small_disk() -> Daemon {
    let mount = "mkdir -p $GOVERNOR_DAEMON_STATE_DIR && \
                 mount -t tmpfs -o size=64k,mode=700 tmpfs $GOVERNOR_DAEMON_STATE_DIR && exec";
    Setup::new(&pool(1, 1, "")).within(mount).start()
}

/// Gives every order that is kept; each is in force afterwards. The warnings.
fn give_orders(daemon: &Daemon) -> Vec<Value> {
    let key = "0123456789abcdef0123456789abcdef";
    let orders = [
        ("POST", "/v1/bypass".to_owned(), json!({ "on": true })),
        ("PUT", format!("/v1/overrides/{key}"), json!({ "cap": 1, "suspend": true })),
        ("PUT", "/v1/settings/node.cap".to_owned(), json!({ "value": 77 })),
        ("PUT", "/v1/settings/pools.chat.members.m1.draining".to_owned(), json!({ "value": true })),
    ];
    let warnings = orders.iter().map(|(method, path, body)| {
        let (status, answer) = daemon.request(method, path, Some(body));
        assert_eq!(status, 200, "{path}: {answer}");
        answer["warning"].clone()
    });
    let warnings = warnings.collect();
    let status = daemon.get("/v1/status");
    assert_eq!((&status["bypass"]["on"], &status["node"]["cap"]), (&json!(true), &json!(77)), "{status}");
    assert_eq!(daemon.get("/v1/overrides")[0]["cap"], 1);
    assert_eq!(daemon.get("/v1/pools")[0]["members"][0]["state"], "draining");
    warnings
}

fn orders_hold_and_are_stored_later(daemon: &Daemon, relieve: impl FnOnce()) {
    let warnings = give_orders(daemon);
    assert!(
        warnings.iter().all(|warning| warning.as_str().is_some_and(|text| text.contains("a restart undoes it"))),
        "{warnings:?}"
    );
    let output = daemon.ctl(&["unset", "node.cap"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("warning: in force, but not stored"), "{output:?}");
    let status = daemon.get("/v1/status");
    let unstored = status["state"]["unstored"].to_string();
    assert!(["bypass.json", "keys.json", "overrides.json"].iter().all(|file| unstored.contains(file)), "{unstored}");
    assert!(
        String::from_utf8_lossy(&daemon.ctl(&["status"]).stdout).contains("bypass.json is in force and not stored")
    );
    relieve();
    daemon.wait_for("/v1/status", |status| status["state"]["unstored"] == json!([]));
    let stored = |file: &str| fs::read_to_string(disk(daemon).join(file)).unwrap();
    assert!(stored("bypass.json").contains("true"));
    assert!(stored("keys.json").contains("suspend"));
    assert!(stored("overrides.json").contains("draining"));
}

#[test]
fn orders_hold_on_a_full_disk() {
    if !is_root() {
        return;
    }
    let daemon = on_a_small_disk();
    let filler = disk(&daemon).join("filler");
    let filled = Command::new("dd").args(["if=/dev/zero", "bs=4k"]).arg(format!("of={}", filler.display())).output();
    assert!(!filled.unwrap().status.success(), "the disk is full");
    orders_hold_and_are_stored_later(&daemon, || fs::remove_file(&filler).unwrap());
}

#[test]
fn orders_hold_in_a_folder_that_became_read_only() {
    if !is_root() {
        return;
    }
    let daemon = on_a_small_disk();
    let folder = daemon.state_dir().display().to_string();
    let within = |arguments: &[&str]| {
        let output = Command::new("nsenter")
            .args(["--mount", "--target", &daemon.pid().to_string()])
            .args(arguments)
            .arg(&folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    // Over the folder itself: a file that is open for writing forbids to change the mount below.
    within(&["mount", "--bind", &folder]);
    within(&["mount", "-o", "remount,bind,ro"]);
    orders_hold_and_are_stored_later(&daemon, || within(&["umount"]));
}

#[test]
fn a_second_daemon_on_the_folder_is_refused_by_pid() {
    let first = Setup::new("").start();
    let mut second = first.command();
    let other = tempfile::tempdir().unwrap();
    second
        .env("GOVERNOR_DAEMON_SOCKET", other.path().join("p"))
        .env("GOVERNOR_DAEMON_CONTROL_SOCKET", other.path().join("c"));
    let output = second.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{} (process {})", first.state_dir().display(), first.pid())), "{said}");
    let checked = first.command().arg("--check").output().unwrap();
    assert!(checked.status.success(), "a check takes no lock: {checked:?}");
}
