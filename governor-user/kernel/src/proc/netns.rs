//! The network namespaces in use on the host and whose turn it is to be looked at. Keeps no reference to any of them:
//! each visit goes in by a door that is checked by inode number, so a namespace ends when its owner ends it.
//!
//! Namespaces are found by a walk over `/proc`, at every audit and when an event names one that is not known; a new
//! one is therefore seen at once with BPF and within an audit interval without.

use crate::proc::privileged::{self, EnterError, Home};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Namespaces looked at in one tick; more take turns, so that a tick stays bounded.
pub(crate) const MOST_PER_TICK: usize = 64;

/// A way into a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Folder of a task below `/proc`.
    Task(PathBuf),
    /// A mount point.
    Mount(PathBuf),
}

impl Door {
    fn path(&self) -> PathBuf {
        match self {
            Self::Task(task) => privileged::door_of(task),
            Self::Mount(path) => path.clone(),
        }
    }
}

#[derive(Debug)]
struct Namespace {
    doors: Vec<Door>,
    denied: bool,
}

/// The known namespaces.
#[derive(Debug)]
pub(crate) struct Namespaces {
    home: Home,
    known: BTreeMap<u64, Namespace>,
    /// The last one whose turn it was.
    cursor: u64,
}

impl Namespaces {
    /// Only the home namespace, until a walk says more.
    pub(crate) fn new(home: Home) -> Self {
        let known = BTreeMap::from([(home.inode(), Namespace { doors: Vec::new(), denied: false })]);
        let cursor = home.inode();
        Self { home, known, cursor }
    }

    /// Takes over what a walk found and forgets what it did not find.
    pub(crate) fn update(&mut self, found: BTreeMap<u64, Vec<Door>>) {
        self.known.retain(|inode, _| *inode == self.home.inode() || found.contains_key(inode));
        for (inode, doors) in found {
            let namespace = self.known.entry(inode).or_insert(Namespace { doors: Vec::new(), denied: false });
            namespace.doors = doors;
        }
    }

    /// Takes over what a walk found that missed others.
    pub(crate) fn add(&mut self, found: BTreeMap<u64, Vec<Door>>) {
        for (inode, doors) in found {
            self.known.entry(inode).or_insert(Namespace { doors: Vec::new(), denied: false }).doors = doors;
        }
    }

    /// Inode number of the daemon's own.
    pub(crate) fn home(&self) -> u64 {
        self.home.inode()
    }

    /// Whether a walk found `inode`.
    pub(crate) fn knows(&self, inode: u64) -> bool {
        self.known.contains_key(&inode)
    }

    /// Inode numbers of all known ones, ascending.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.known.keys().copied().collect()
    }

    /// How many are known.
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// How many could not be entered for want of rights.
    pub(crate) fn denied(&self) -> usize {
        self.known.values().filter(|namespace| namespace.denied).count()
    }

    /// Whose turn it is: the home namespace always, the others in order, at most `most` altogether.
    pub(crate) fn turn(&mut self, most: usize) -> Vec<u64> {
        let home = self.home.inode();
        let after = self.known.range(self.cursor + 1..).map(|(inode, _)| *inode);
        let before = self.known.range(..=self.cursor).map(|(inode, _)| *inode);
        let others: Vec<u64> =
            after.chain(before).filter(|inode| *inode != home).take(most.saturating_sub(1)).collect();
        self.cursor = others.last().copied().unwrap_or(self.cursor);
        std::iter::once(home).chain(others).collect()
    }

    /// Folder of a task that lives in `inode`, if one is known; `/proc/thread-self` for the home namespace.
    pub(crate) fn task_in(&self, inode: u64) -> Option<PathBuf> {
        if inode == self.home.inode() {
            return Some("/proc/thread-self".into());
        }
        self.known.get(&inode)?.doors.iter().find_map(|door| match door {
            Door::Task(task) if privileged::task_namespace(task).is_ok_and(|found| found == inode) => {
                Some(task.clone())
            }
            Door::Task(_) | Door::Mount(_) => None,
        })
    }

    /// Runs `work` inside the namespace. It is forgotten when no door leads there any more.
    pub(crate) fn visit<T>(&mut self, inode: u64, mut work: impl FnMut() -> T) -> Result<T, EnterError> {
        if inode == self.home.inode() {
            return self.home.visit(inode, Path::new(""), work);
        }
        let Some(namespace) = self.known.get_mut(&inode) else { return Err(EnterError::Gone) };
        let mut reason = EnterError::Gone;
        for door in &namespace.doors {
            match self.home.visit(inode, &door.path(), &mut work) {
                Ok(result) => {
                    namespace.denied = false;
                    return Ok(result);
                }
                Err(EnterError::Gone) => {}
                Err(EnterError::Stranded(error)) => return Err(EnterError::Stranded(error)),
                Err(other @ (EnterError::Denied | EnterError::Other(_))) => reason = other,
            }
        }
        match reason {
            EnterError::Gone => drop(self.known.remove(&inode)),
            EnterError::Denied | EnterError::Other(_) | EnterError::Stranded(_) => namespace.denied = true,
        }
        Err(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(others: &[u64]) -> (Namespaces, u64) {
        let home = Home::of_this_thread().unwrap();
        let inode = home.inode();
        let mut namespaces = Namespaces::new(home);
        namespaces.update(others.iter().map(|other| (*other, Vec::new())).collect());
        (namespaces, inode)
    }

    #[test]
    fn namespaces_take_turns_and_the_home_namespace_is_in_every_one() {
        let (mut namespaces, home) = with(&[11, 12, 13]);
        assert_eq!(namespaces.turn(3), vec![home, 11, 12]);
        assert_eq!(namespaces.turn(3), vec![home, 13, 11]);
        assert_eq!(namespaces.turn(10), vec![home, 12, 13, 11]);
        assert_eq!(namespaces.turn(1), vec![home]);
    }

    #[test]
    fn a_namespace_without_a_door_is_forgotten_at_the_next_visit() {
        let (mut namespaces, home) = with(&[11]);
        assert!(matches!(namespaces.visit(11, || ()), Err(EnterError::Gone)));
        assert!(namespaces.knows(home) && namespaces.count() == 1);
    }

    #[test]
    fn a_walk_that_misses_a_namespace_drops_it_but_never_the_home_namespace() {
        let (mut namespaces, home) = with(&[11, 12]);
        namespaces.update(BTreeMap::from([(12, Vec::new())]));
        assert!(namespaces.knows(12) && namespaces.knows(home) && !namespaces.knows(11));
    }
}
