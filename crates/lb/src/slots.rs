//! Values behind small keys that are never mistaken for one another.
//!
//! A key names a slot and the generation of its content. So a key whose value is gone finds
//! nothing, even when the slot is in use again. A late event about an endpoint that left is
//! harmless.

/// A store of values; insert, look up and remove are O(1).
#[derive(Debug)]
pub(crate) struct Slots<V> {
    slots: Vec<Slot<V>>,
    free: Vec<u32>,
}

impl<V> Slots<V> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, value: V) -> Key {
        self.insert_with(|_| value)
    }

    /// Inserts a value that knows its own key.
    pub(crate) fn insert_with(&mut self, value: impl FnOnce(Key) -> V) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            let key = Key {
                index,
                generation: slot.generation,
            };
            slot.value = Some(value(key));
            return key;
        }
        let key = Key {
            index: self.slots.len() as u32,
            generation: 0,
        };
        // From one to two, to four and so on: most channels have one, and `push` begins with four.
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(self.slots.len().max(1));
        }
        self.slots.push(Slot {
            generation: 0,
            value: Some(value(key)),
        });
        key
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Every value with its key.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Key, &V)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            let generation = slot.generation;
            let key = Key {
                index: index as u32,
                generation,
            };
            Some((key, slot.value.as_ref()?))
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    pub(crate) fn get(&self, key: Key) -> Option<&V> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        slot.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut V> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        slot.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<V> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }
}

/// Names a value in [`Slots`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

#[derive(Debug)]
struct Slot<V> {
    generation: u32,
    value: Option<V>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_find_the_next_value_of_its_slot() {
        let mut slots = Slots::new();
        let first = slots.insert("first");
        assert_eq!(slots.remove(first), Some("first"));

        let second = slots.insert("second");
        assert_eq!(second.index, first.index);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second), Some(&"second"));
    }
}
