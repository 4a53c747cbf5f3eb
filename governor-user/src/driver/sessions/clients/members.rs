//! What belongs to one connection: mostly one request or lease at a time, which costs no memory of its own. Of many that share
//! a connection each is found by a logarithm, because proxies choose how many there are.

use crate::driver::sessions::clients::Client;
use std::collections::BTreeSet;

/// A set of them.
#[derive(Debug, Default)]
pub(super) struct Members {
    one: Option<Client>,
    /// There may be some while there is no `one`.
    more: BTreeSet<Client>,
}

impl Members {
    /// Adds one that is not there yet.
    pub(super) fn insert(&mut self, client: Client) {
        if self.one.is_none() {
            self.one = Some(client);
        } else {
            self.more.insert(client);
        }
    }

    /// Takes one out, if it is there.
    pub(super) fn remove(&mut self, client: Client) {
        if self.one.take_if(|one| *one == client).is_none() {
            self.more.remove(&client);
        }
    }

    /// Puts one in the place of another.
    pub(super) fn replace(&mut self, old: Client, new: Client) {
        self.remove(old);
        self.insert(new);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    /// All of them, each once.
    pub(super) fn into_all(self) -> impl Iterator<Item = Client> {
        self.one.into_iter().chain(self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_engine::id::LeaseId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_a_set(steps in prop::collection::vec((0..3_u8, 0..6_u64, 6..9_u64), 0..60)) {
            let client = |id| Client::Lease(LeaseId(id));
            let (mut members, mut set) = (Members::default(), BTreeSet::new());
            for (step, id, other) in steps {
                let (old, new) = (client(id), client(other));
                match step {
                    0 if set.insert(old) => members.insert(old),
                    1 if set.contains(&old) && set.insert(new) => {
                        set.remove(&old);
                        members.replace(old, new);
                    }
                    0 | 1 => {}
                    _ => {
                        set.remove(&old);
                        members.remove(old);
                    }
                }
                prop_assert_eq!(members.is_empty(), set.is_empty());
            }
            let mut all: Vec<_> = members.into_all().collect();
            all.sort();
            prop_assert!(all.into_iter().eq(set));
        }
    }
}
