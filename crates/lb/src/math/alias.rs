//! A weighted choice in constant time: Vose's alias method, in integers.
//!
//! The method spreads `n` weights over `n` columns of equal height. Each column holds at most two
//! items: its own, up to a threshold, and one alias above it. A choice picks a column, then one of
//! its two items. Usual implementations spread floating-point probabilities and lose a little of
//! each. Here the weights are scaled by `n` instead of divided by their sum. So each item's share
//! is exact, and a test checks it.
//!
//! Build: O(n) time and space. Choose: O(1), one random number, no branch on `n`.

use std::num::NonZeroU32;

/// A table that chooses an index with a probability proportional to its weight.
///
/// ```
/// # use std::num::NonZeroU32;
/// # use crowfly_lb::AliasTable;
/// let weights = [70, 20, 10].map(|weight| NonZeroU32::new(weight).unwrap());
/// let table = AliasTable::new(&weights).unwrap();
/// assert_eq!(table.probability(0), 0.7);
/// assert!(table.choose(0x9e37_79b9_7f4a_7c15) < 3);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AliasTable {
    columns: Box<[Column]>,
    /// The height of a column: the sum of the weights.
    height: u64,
}

impl AliasTable {
    /// Builds the table, or returns `None` if there are no weights.
    pub fn new(weights: &[NonZeroU32]) -> Option<Self> {
        if weights.is_empty() {
            return None;
        }
        let count = weights.len() as u64;
        let height = weights.iter().map(|weight| u64::from(weight.get())).sum();
        // The weight of each item that is not in a column yet. The sum is count * height.
        let mut left: Vec<u64> = weights
            .iter()
            .map(|weight| u64::from(weight.get()) * count)
            .collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|&item| left[item] < height);

        let mut columns: Box<[Column]> = (0..weights.len())
            .map(|item| Column {
                threshold: height,
                alias: item as u32,
            })
            .collect();
        while let (Some(&item), Some(&donor)) = (small.last(), large.last()) {
            small.pop();
            columns[item] = Column {
                threshold: left[item],
                alias: donor as u32,
            };
            left[donor] -= height - left[item];
            if left[donor] < height {
                large.pop();
                small.push(donor);
            }
        }
        // Integers leave no residue: what remains fills its own column exactly.
        Some(Self { columns, height })
    }

    /// Chooses an index by a random number, uniform over all of `u64`.
    ///
    /// The high part of `random * n` is the column; the low part, still uniform, is the height
    /// inside it. The bias is below `n * sum / 2^64`.
    pub fn choose(&self, random: u64) -> usize {
        let product = u128::from(random) * self.columns.len() as u128;
        let index = (product >> 64) as usize;
        let level = ((u128::from(product as u64) * u128::from(self.height)) >> 64) as u64;
        let column = &self.columns[index];
        if level < column.threshold {
            index
        } else {
            column.alias as usize
        }
    }

    /// The columns, for a table that is used elsewhere. Each has the share of its own item in 2^32
    /// parts, rounded down, and its alias. A full column has itself as alias.
    pub fn columns(&self) -> impl Iterator<Item = (u32, usize)> {
        self.columns.iter().map(|column| {
            let parts = (u128::from(column.threshold) << 32) / u128::from(self.height);
            let parts = u32::try_from(parts).unwrap_or(u32::MAX);
            (parts, column.alias as usize)
        })
    }

    /// The probability of an index, as the table has it: read back from its columns.
    pub fn probability(&self, index: usize) -> f64 {
        let (part, whole) = self.share(index);
        part as f64 / whole as f64
    }

    /// The exact share of an index as a fraction, read back from the columns in O(n).
    pub fn share(&self, index: usize) -> (u128, u128) {
        let mut part = 0;
        for (column, entry) in self.columns.iter().enumerate() {
            if column == index {
                part += u128::from(entry.threshold);
            }
            if entry.alias as usize == index {
                part += u128::from(self.height - entry.threshold);
            }
        }
        (part, u128::from(self.height) * self.columns.len() as u128)
    }
}

/// Below the threshold the column's own item, above it the alias.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Column {
    threshold: u64,
    alias: u32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(weights: &[u32]) -> AliasTable {
        let weights: Vec<_> = weights
            .iter()
            .map(|&w| NonZeroU32::new(w).unwrap())
            .collect();
        AliasTable::new(&weights).unwrap()
    }

    #[test]
    fn no_weights_make_no_table() {
        assert_eq!(AliasTable::new(&[]), None);
    }

    #[test]
    fn the_extremes_of_the_random_number_stay_inside_the_table() {
        for weights in [
            &[1][..],
            &[1, u32::MAX],
            &[u32::MAX; 5],
            &[3, 1, 4, 1, 5, 9, 2, 6],
        ] {
            let table = table(weights);
            assert!(table.choose(0) < weights.len());
            assert!(table.choose(u64::MAX) < weights.len());
        }
    }

    #[test]
    fn columns_have_the_shares_in_parts_of_2_to_the_32() {
        let columns: Vec<_> = table(&[3, 1]).columns().collect();
        assert_eq!(columns, [(u32::MAX, 0), (1 << 31, 0)]);
        let columns: Vec<_> = table(&[7, 7]).columns().collect();
        assert_eq!(columns, [(u32::MAX, 0), (u32::MAX, 1)]);
    }

    #[test]
    fn choose_agrees_with_the_shares() {
        let weights = [1, 2, 3, 94];
        let table = table(&weights);
        // A grid over all of u64 measures the length of each item's part of the line.
        let steps = 1_000_000_u64;
        let mut counts = [0_u64; 4];
        for step in 0..steps {
            counts[table.choose(step * (u64::MAX / steps))] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            assert!(
                count.abs_diff(u64::from(weight) * steps / 100) < 20,
                "{counts:?}"
            );
        }
    }

    proptest! {
        /// S7-02: the share of each weight is exact, not only close.
        #[test]
        fn shares_are_exact(weights in proptest::collection::vec(1..=u32::MAX, 1..40)) {
            let table = table(&weights);
            let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
            for (index, &weight) in weights.iter().enumerate() {
                let (part, whole) = table.share(index);
                prop_assert_eq!(part * sum, u128::from(weight) * whole);
            }
        }
    }
}
