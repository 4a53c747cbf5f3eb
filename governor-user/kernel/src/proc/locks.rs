//! Who holds a lock on a file, as `/proc/locks` shows it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

/// The process that has locked the file, as `/proc` numbers it; `None` where `/proc/locks` shows none.
#[must_use]
pub fn holder(handle: &File) -> Option<u32> {
    let inode = handle.metadata().ok()?.ino();
    holder_in(&fs::read_to_string("/proc/locks").ok()?, inode)
}

/// `1: FLOCK  ADVISORY  WRITE 1234 00:1b:5678 0 EOF`: process, device and inode. A process that this one cannot see is 0.
fn holder_in(locks: &str, inode: u64) -> Option<u32> {
    let suffix = format!(":{inode}");
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, _, _) = (fields.next()?, fields.next()?, fields.next()?);
        let (pid, file) = (fields.next()?, fields.next()?);
        (kind == "FLOCK" && file.ends_with(&suffix)).then(|| pid.parse().ok())?.filter(|pid| *pid != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_named_by_the_files_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1b:56 0 EOF\n2: FLOCK  ADVISORY  WRITE 1234 00:1b:56 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 00:1b:57 0 EOF\n3: FLOCK  ADVISORY  WRITE 0 00:1b:58 0 EOF\n";
        assert_eq!(holder_in(locks, 56), Some(1234));
        assert_eq!(holder_in(locks, 6), None);
        assert_eq!(holder_in(locks, 57), None, "a process that waits has not got it");
        assert_eq!(holder_in(locks, 58), None);
    }
}
