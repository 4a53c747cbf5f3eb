//! The folder as a daemon uses it: one owner, damage of every kind, a disk that refuses and accepts again.

use super::*;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_folder_belongs_to_one_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let first = StateDir::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let refused = StateDir::open(&path).unwrap_err().to_string();
    assert!(refused.contains("another governord is running on"), "{refused}");
    assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
    drop(first);
    StateDir::open(&path).unwrap();
}

#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
    let refused = StateDir::open(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("mode 0770") && refused.contains("chmod go-w"), "{refused}");
}

#[test]
fn content_is_stored_whole_and_private() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::open(folder.path()).unwrap();
    assert!(state.is_new());
    // What a crash left, or an attacker prepared.
    symlink("/nowhere", folder.path().join("keys.json.new")).unwrap();
    state.store(KEYS, b"[1]".to_vec());
    state.store(KEYS, b"[1,2]".to_vec());
    state.finish();
    assert_eq!(state.load::<Vec<u8>>(KEYS), Some(vec![1, 2]));
    assert_eq!(names(folder.path()), ["keys.json"]);
    assert_eq!(fs::metadata(folder.path().join("keys.json")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!state.is_new() || state.damaged().is_empty());
}

#[test]
fn every_kind_of_damage_is_moved_aside() {
    type Prepare = fn(&Path);
    let damages: [(&str, Prepare); 8] = [
        ("empty", |path| fs::write(path, "").unwrap()),
        ("content", |path| fs::write(path, "[1,").unwrap()),
        ("content", |path| fs::write(path, [0xff, 0, 1]).unwrap()),
        ("symbolic link", |path| symlink("/dev/zero", path).unwrap()),
        ("not a regular file", |path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        }),
        ("a folder", |path| fs::create_dir(path).unwrap()),
        ("more than 4096 bytes", |path| fs::write(path, [b' '; 5000]).unwrap()),
        ("written by other users", |path| {
            fs::write(path, "[]").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        }),
    ];
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::open(folder.path()).unwrap();
    for (count, (word, prepare)) in (1..).zip(damages) {
        prepare(&folder.path().join("bypass.json"));
        assert_eq!(state.load::<Vec<u8>>(BYPASS), None);
        let found = state.damaged().pop().unwrap();
        assert!(found.why.contains(word), "{found:?}");
        assert_eq!(
            (found.name.as_str(), found.aside.as_deref()),
            ("bypass.json", Some(&*format!("bypass.json.damaged-{count}")))
        );
    }
    assert_eq!(state.load::<Vec<u8>>(BYPASS), None);
    assert_eq!(state.damaged().len(), 8, "a file that is not there is not damaged");
    fs::write(folder.path().join("bypass.json"), "?").unwrap();
    assert_eq!(state.load::<Vec<u8>>(BYPASS), None);
    assert_eq!(names(folder.path()).len(), 8, "the last place is used again");
}

#[test]
fn the_folder_of_a_log_must_be_a_folder_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), folder.path().join("events")).unwrap();
    fs::write(folder.path().join("demand"), "").unwrap();
    let state = StateDir::open(folder.path()).unwrap();
    assert_eq!(names(folder.path()), ["demand.damaged-1", "events.damaged-1"]);
    assert_eq!(state.damaged().len(), 2);
}

#[tokio::test]
async fn a_change_is_stored_when_the_disk_accepts_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::open(folder.path()).unwrap();
    // A folder with something in it cannot be replaced by a file.
    let obstacle = folder.path().join("keys.json");
    fs::create_dir_all(obstacle.join("x")).unwrap();
    let warning = state.store(KEYS, b"[1]".to_vec()).warning().await.unwrap();
    assert!(warning.contains("a restart undoes it"), "{warning}");
    assert_eq!(state.unstored().iter().map(|one| one.name).collect::<Vec<_>>(), ["keys.json"]);
    let second = state.store(KEYS, b"[2]".to_vec()).warning().await;
    assert!(second.is_some());
    assert_eq!(state.store(BYPASS, b"{}".to_vec()).warning().await, None, "other files are stored meanwhile");
    fs::remove_dir_all(&obstacle).unwrap();
    until(|| state.unstored().is_empty());
    assert_eq!(state.load::<Vec<u8>>(KEYS), Some(vec![2]), "the newest content counts");
}
