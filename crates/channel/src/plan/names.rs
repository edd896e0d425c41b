//! Names for the priorities of a cluster that survive localities moving between them (gRFC A56).
//!
//! A priority has no name of its own: it is the set of its localities. When the localities move, for example because a
//! priority is inserted above, the child that has the connections must move with them.

use std::collections::BTreeSet;

use crowfly_lb::LocalityId;

/// The numbers that the priorities of one cluster have, and the localities of each.
#[derive(Debug, Default)]
pub(super) struct ChildNames {
    /// The localities are sorted. The list is no `BTreeSet`, because that has room for eleven at once.
    known: Vec<(u64, Vec<LocalityId>)>,
    next: u64,
}

impl ChildNames {
    /// A number for each priority of the next update. A priority that shares a locality with one of the last update
    /// gets its number, preferably that in the same place. No number is given twice.
    pub(super) fn assign(&mut self, mut priorities: Vec<Vec<LocalityId>>) -> Vec<u64> {
        priorities.iter_mut().for_each(|ids| ids.sort_unstable());
        let mut taken = BTreeSet::new();
        let mut numbers: Vec<Option<u64>> = vec![None; priorities.len()];
        let shares = |known: &[LocalityId], next: &[LocalityId]| {
            next.iter().any(|id| known.binary_search(id).is_ok())
        };
        for (index, priority) in priorities.iter().enumerate() {
            let there = self.known.get(index);
            if let Some((number, _)) = there.filter(|(_, known)| shares(known, priority)) {
                numbers[index] = Some(*number);
                taken.insert(*number);
            }
        }
        for (number_of, priority) in numbers.iter_mut().zip(&priorities) {
            if number_of.is_some() {
                continue;
            }
            let mut known = self.known.iter();
            let moved =
                known.find(|(number, known)| !taken.contains(number) && shares(known, priority));
            let number = moved.map(|(number, _)| *number).unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            taken.insert(number);
            *number_of = Some(number);
        }
        let numbers: Vec<u64> = numbers.into_iter().flatten().collect();
        self.known = numbers.iter().copied().zip(priorities).collect();
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S8-14: localities that move take the name of their priority along, and no name is given
    /// twice.
    #[test]
    fn a_name_moves_with_its_localities() {
        let mut names = ChildNames::default();
        assert_eq!(names.assign(priorities(&["a", "b"])), [0, 1]);
        // One is inserted above.
        assert_eq!(names.assign(priorities(&["c", "a", "b"])), [2, 0, 1]);
        // The first goes, and comes back.
        assert_eq!(names.assign(priorities(&["a", "b"])), [0, 1]);
        assert_eq!(names.assign(priorities(&["c", "a", "b"])), [3, 0, 1]);
    }

    /// S8-14: localities that swap priorities swap names.
    #[test]
    fn names_swap_with_their_localities() {
        let mut names = ChildNames::default();
        assert_eq!(names.assign(priorities(&["a", "b"])), [0, 1]);
        assert_eq!(names.assign(priorities(&["b", "a"])), [1, 0]);
    }

    /// S8-14: if two priorities share localities with an earlier one, the one in its place gets its name.
    #[test]
    fn a_priority_that_is_split_keeps_the_name_in_its_place() {
        let mut names = ChildNames::default();
        assert_eq!(names.assign(priorities(&["ab", "c"])), [0, 1]);
        assert_eq!(names.assign(priorities(&["a", "bc"])), [0, 1]);
        assert_eq!(names.assign(priorities(&["b", "ac"])), [2, 1]);
    }

    /// S8-14: a priority that shares no locality with an earlier one gets a new name, even in the same place.
    #[test]
    fn a_priority_of_new_localities_has_a_new_name() {
        let mut names = ChildNames::default();
        assert_eq!(names.assign(priorities(&["a"])), [0]);
        assert_eq!(names.assign(priorities(&["b"])), [1]);
        assert_eq!(names.assign(priorities(&[""])), [2]);
    }

    fn priorities(zones: &[&str]) -> Vec<Vec<LocalityId>> {
        let localities = |zones: &str| {
            let zones = zones.chars().map(|zone| zone.to_string());
            zones.map(|zone| LocalityId::new("us", &zone, "")).collect()
        };
        zones.iter().map(|zones| localities(zones)).collect()
    }
}
