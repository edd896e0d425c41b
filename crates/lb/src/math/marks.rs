//! Marks on the places of a list.
//!
//! They exist because a `priority` node may have thousands of children. The next place with a mark
//! is found without a look at every place.

/// Up to eight marks for each place of a list, one bit each.
///
/// It is a tree in an array: each node has the marks of all places below it. So a search passes
/// over the parts of the list that do not have the mark. Setting and finding are O(log places).
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The root is at 1, the children of `n` at `2n` and `2n + 1`, the places in the last half.
    nodes: Box<[u8]>,
}

impl Marks {
    /// No marks on any of `len` places.
    pub(crate) fn new(len: usize) -> Self {
        let nodes = vec![0; 2 * len.next_power_of_two()];
        Self {
            nodes: nodes.into(),
        }
    }

    /// Gives a place these marks, and no others.
    pub(crate) fn set(&mut self, place: usize, marks: u8) {
        let mut at = self.nodes.len() / 2 + place;
        self.nodes[at] = marks;
        while at > 1 {
            at /= 2;
            let below = self.nodes[2 * at] | self.nodes[2 * at + 1];
            if self.nodes[at] == below {
                return;
            }
            self.nodes[at] = below;
        }
    }

    /// The first place from `from` on that has the mark.
    pub(crate) fn first(&self, from: usize, mark: u8) -> Option<usize> {
        let places = self.nodes.len() / 2;
        if from >= places {
            return None;
        }
        let mut at = places + from;
        while self.nodes[at] & mark == 0 {
            // The next part on the right: up while this is the right half, then across.
            while at % 2 == 1 {
                at /= 2;
            }
            if at == 0 {
                return None;
            }
            at += 1;
        }
        while at < places {
            at *= 2;
            if self.nodes[at] & mark == 0 {
                at += 1;
            }
        }
        Some(at - places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The search finds the place that a look at every place finds.
    #[test]
    fn the_first_mark_is_found() {
        for len in [0, 1, 2, 3, 7, 8, 9, 33] {
            let mut rng = fastrand::Rng::with_seed(len as u64);
            let mut plain = vec![0_u8; len];
            let mut marks = Marks::new(len);
            for _ in 0..len * 20 {
                let (place, bits) = (rng.usize(..len), rng.u8(..4) & rng.u8(..4));
                plain[place] = bits;
                marks.set(place, bits);
                for from in 0..=len + 1 {
                    for mark in [1, 2] {
                        let expected = (from..len).find(|&at| plain[at] & mark != 0);
                        assert_eq!(marks.first(from, mark), expected);
                    }
                }
            }
            assert_eq!(Marks::new(len).first(0, 1), None);
        }
    }
}
