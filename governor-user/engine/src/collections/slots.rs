//! Values in numbered slots that are used again: one look-up by index, no allocation once as many have been there before.
//! Iteration goes by slot number, which depends on nothing but the order of insertions and removals.

/// A slot's number.
pub(crate) type Slot = u32;

/// Values by slot.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    values: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(crate) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number after the last slot, used or free.
    pub(crate) fn end(&self) -> Slot {
        Slot::try_from(self.values.len()).expect("what is counted in u32 fits")
    }

    /// Puts a value into a free slot.
    pub(crate) fn insert(&mut self, value: T) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.values[slot as usize] = Some(value);
            return slot;
        }
        self.values.push(Some(value));
        Slot::try_from(self.values.len() - 1).expect("what is counted in u32 fits")
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.values.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.values.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.values.get_mut(slot as usize)?.as_mut()
    }

    /// All, by slot number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        (0..).zip(&self.values).filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }

    /// All, by slot number, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut T)> {
        (0..).zip(&mut self.values).filter_map(|(slot, value)| Some((slot, value.as_mut()?)))
    }
}

impl<T> std::ops::Index<Slot> for Slots<T> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        self.get(slot).expect("whoever keeps a slot's number keeps the slot")
    }
}

impl<T> std::ops::IndexMut<Slot> for Slots<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        self.get_mut(slot).expect("whoever keeps a slot's number keeps the slot")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_and_the_others_stay_where_they_are() {
        let mut slots = Slots::default();
        let (a, b) = (slots.insert('a'), slots.insert('b'));
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!(slots.remove(a), None);
        assert_eq!(slots.insert('c'), a);
        assert_eq!((slots[a], slots[b], slots.len()), ('c', 'b', 2));
    }
}
