//! Finds names that are spelled nearly alike, because an operator who mistyped a name wants to see
//! the right one.

use std::collections::BTreeSet;

/// The largest number of names that are told.
const MOST: usize = 3;

/// The longest name that is compared, in bytes, because the work grows with both lengths.
const LONGEST: usize = 256;

/// The names that are nearest to `wanted`, the nearest first. Names that have little in common with
/// it are left out.
pub(super) fn names(wanted: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let limit = wanted.chars().count() / 3 + 1;
    let is_short = |name: &str| name.len() <= LONGEST;
    let names = names.filter(|name| is_short(wanted) && is_short(name));
    let near = names.filter_map(|name| {
        let distance = distance(wanted, &name);
        let is_part = !wanted.is_empty() && name.contains(wanted);
        (distance <= limit || is_part).then_some((distance, name))
    });
    let near: BTreeSet<_> = near.collect();
    near.into_iter().map(|(_, name)| name).take(MOST).collect()
}

/// The number of characters to insert, remove or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first() {
        let all = ["web-1", "web-2", "web-12", "api-1", "payments-web-1"];
        let near = |wanted| names(wanted, all.iter().map(|name| (*name).to_owned()));
        assert_eq!(near("web1"), ["web-1", "web-12", "web-2"]);
        assert_eq!(near("payments"), ["payments-web-1"]);
        assert!(near("zebra").is_empty());
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
