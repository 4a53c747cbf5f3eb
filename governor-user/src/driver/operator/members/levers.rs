//! What operators ordered for single members and still holds: drains and cool-downs, kept in the state folder so that a
//! restart keeps them. Ends are wall-clock time, because they outlive the process and the boot. Decides nothing.

use crate::state::{MEMBERS, StateDir, Stored};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Members that can have an order at one time, those that the configuration no longer names included.
const MOST: usize = 10_000;

/// One order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lever {
    /// When it ends by itself, in seconds since 1970; `None`: until an operator ends it.
    pub until: Option<u64>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// The operator.
    pub set_by: String,
    /// When it was ordered, RFC 3339.
    pub set_at: String,
}

/// The orders of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levers {
    /// It takes nothing until this ends.
    #[serde(default)]
    pub cool: Option<Lever>,
    /// It takes nothing until undrained.
    #[serde(default)]
    pub drain: Option<Lever>,
}

/// One entry of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    pool: String,
    member: String,
    #[serde(flatten)]
    levers: Levers,
}

/// Pool and member by name: orders outlive the ids.
pub type Place = (String, String);

/// All orders and where they are kept.
#[derive(Debug)]
pub struct MemberLevers {
    folder: StateDir,
    all: BTreeMap<Place, Levers>,
}

/// Too many members have an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MOST} members have an order already: undrain some")]
pub struct TooMany;

impl MemberLevers {
    /// As they were left in this state folder.
    #[must_use]
    pub fn load(folder: &StateDir) -> Self {
        let entries = folder.load::<Vec<Entry>>(MEMBERS).unwrap_or_default();
        let all = entries.into_iter().map(|entry| ((entry.pool, entry.member), entry.levers)).collect();
        Self { folder: folder.clone(), all }
    }

    /// All orders that hold at `wall`, by pool and member.
    pub fn iter(&self, wall: u64) -> impl Iterator<Item = (&Place, Levers)> {
        self.all.iter().map(move |(place, levers)| (place, levers.at(wall)))
    }

    /// The orders of a member that hold at `wall`.
    #[must_use]
    pub fn of(&self, place: &Place, wall: u64) -> Levers {
        self.all.get(place).map(|levers| levers.at(wall)).unwrap_or_default()
    }

    /// Replaces the orders of a member. They hold at once; the answer says whether they are stored.
    ///
    /// # Errors
    /// There are too many; everything is as it was.
    pub fn set(&mut self, place: Place, levers: Levers, wall: u64) -> Result<Stored, TooMany> {
        self.all.retain(|_, levers| levers.at(wall) != Levers::default());
        if levers == Levers::default() {
            self.all.remove(&place);
        } else if !self.all.contains_key(&place) && self.all.len() >= MOST {
            return Err(TooMany);
        } else {
            self.all.insert(place, levers);
        }
        let entries = self.all.iter().map(|((pool, member), levers)| Entry {
            pool: pool.clone(),
            member: member.clone(),
            levers: levers.clone(),
        });
        let content = serde_json::to_vec_pretty(&entries.collect::<Vec<_>>()).expect("plain data serializes");
        Ok(self.folder.store(MEMBERS, content))
    }
}

impl Levers {
    /// Without those that are over at `wall`.
    fn at(&self, wall: u64) -> Self {
        let holds = |lever: &Lever| lever.until.is_none_or(|until| until > wall);
        Self { cool: self.cool.clone().filter(holds), drain: self.drain.clone().filter(holds) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(member: usize) -> Place {
        ("chat".to_owned(), format!("m{member}"))
    }

    fn until(end: Option<u64>) -> Option<Lever> {
        Some(Lever { until: end, set_by: "uid 0".into(), ..Lever::default() })
    }

    #[test]
    fn orders_survive_a_restart_and_a_cool_down_ends_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        let mut levers = MemberLevers::load(&state);
        drop(levers.set(place(1), Levers { cool: until(Some(100)), drain: until(None) }, 50).unwrap());
        drop(levers.set(place(2), Levers { cool: until(Some(100)), drain: None }, 50).unwrap());
        state.finish();
        let again = MemberLevers::load(&state);
        assert_eq!(again.of(&place(1), 99), Levers { cool: until(Some(100)), drain: until(None) });
        assert_eq!(again.of(&place(1), 100), Levers { cool: None, drain: until(None) });
        assert_eq!(again.of(&place(2), 100), Levers::default());
    }

    #[test]
    fn there_are_only_so_many_and_ended_ones_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut levers = MemberLevers::load(&StateDir::open(folder.path()).unwrap());
        levers.all = (0..MOST).map(|n| (place(n), Levers { cool: until(Some(100)), drain: None })).collect();
        let drained = Levers { cool: None, drain: until(None) };
        assert_eq!(levers.set(place(MOST), drained.clone(), 99).err(), Some(TooMany));
        drop(levers.set(place(0), drained.clone(), 99).unwrap());
        drop(levers.set(place(MOST), drained, 100).unwrap());
        assert_eq!(levers.all.len(), 2);
    }
}
