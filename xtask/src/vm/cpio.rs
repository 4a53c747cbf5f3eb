//! The archive format of an initramfs ("newc"), as far as this project needs it: folders and files owned by root. The
//! kernel unpacks archives one after the other, so two of them can simply be concatenated.

use std::collections::BTreeSet;
use std::path::{Component, Path};

/// File type bits of the mode.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// An archive that grows in memory. Folders on the way to an entry are made by themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    inode: u32,
}

impl Archive {
    /// Adds a folder.
    pub(super) fn folder(&mut self, path: &str) {
        self.parents(path);
        self.new_folder(path.trim_matches('/'));
    }

    /// Adds a file that every user may read and run.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(path.trim_matches('/'), FILE | 0o755, content);
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, b"");
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        let mut folder = String::new();
        for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
            if let Component::Normal(name) = part {
                if !folder.is_empty() {
                    folder.push('/');
                }
                folder.push_str(&name.to_string_lossy());
                self.new_folder(&folder);
            }
        }
    }

    fn new_folder(&mut self, path: &str) {
        if self.folders.insert(path.to_owned()) {
            self.entry(path, FOLDER | 0o755, b"");
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        let inode = self.inode;
        self.inode += 1;
        // inode, mode, uid, gid, links, time, size, device (2), special device (2), name length, checksum
        let size = content.len();
        let header = format!(
            "070701{inode:08X}{mode:08X}{0:08X}{0:08X}{1:08X}{0:08X}{size:08X}{0:08X}{0:08X}{0:08X}{0:08X}{2:08X}{0:08X}",
            0,
            1,
            path.len() + 1
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths, modes and contents, read back by the format's own description.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            let field = |index: usize| {
                let start = at + 6 + index * 8;
                u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16).unwrap()
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (mode, size, name) = (field(1), field(6) as usize, field(11) as usize);
            let path = String::from_utf8(bytes[at + 110..at + 110 + name - 1].to_vec()).unwrap();
            let content = (at + 110 + name).next_multiple_of(4);
            if path == "TRAILER!!!" {
                return entries;
            }
            entries.push((path, mode, bytes[content..content + size].to_vec()));
            at = (content + size).next_multiple_of(4);
        }
    }

    #[test]
    fn entries_come_back_with_their_folders_before_them() {
        let mut archive = Archive::default();
        archive.file("/usr/lib/a", b"hello");
        archive.file("/usr/lib/b", b"");
        archive.folder("/proc");
        let entries = read(&archive.finish());
        let paths: Vec<&str> = entries.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["usr", "usr/lib", "usr/lib/a", "usr/lib/b", "proc"]);
        assert_eq!(entries[0].1, 0o040_755);
        assert_eq!((entries[2].1, entries[2].2.as_slice()), (0o100_755, b"hello".as_slice()));
    }
}
