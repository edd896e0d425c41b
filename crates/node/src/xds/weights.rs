//! Exact weights as whole numbers.
//!
//! The weight of an endpoint is a fraction, times the weight of its cluster. The maps take numbers of 32
//! bits. As long as the smallest common denominator allows it, the numbers are exact.

use super::endpoints::Share;

/// Whole numbers in the ratio of `shares`, each times its factor. Their sum has 32 bits.
///
/// Only a weight of 0 becomes 0, because any other must get some connections.
pub(super) fn whole(shares: &[(Share, u32)]) -> Vec<u32> {
    let exact = exact(shares).unwrap_or_else(|| rounded(shares));
    let common = exact.iter().fold(0, |common, weight| gcd(common, *weight));
    let is_plain = shares.iter().all(|(share, _)| share.denominator == 1);
    let sum: u128 = exact.iter().sum();
    let limit = u128::from(u32::MAX);
    // Weights that the resources gave as they are stay so, because a reader looks for them.
    if is_plain && sum <= limit {
        return exact.into_iter().map(narrow).collect();
    }
    let common = common.max(1);
    let sum = sum / common;
    let scaled = exact.into_iter().map(|weight| weight / common);
    if sum <= limit {
        return scaled.map(narrow).collect();
    }
    // The 1s that small weights are raised to fit, too: there are fewer than 2^31 of them.
    let scale = |weight: u128| match weight {
        0 => 0,
        weight => narrow(scale_down(weight, sum)).max(1),
    };
    scaled.map(scale).collect()
}

/// The numbers over the smallest common denominator; `None` if they have more than 128 bits.
fn exact(shares: &[(Share, u32)]) -> Option<Vec<u128>> {
    let mut common = 1_u128;
    for (share, _) in shares {
        let denominator = u128::from(share.denominator);
        common = common.checked_mul(denominator / gcd(common, denominator))?;
    }
    let mut numbers = Vec::with_capacity(shares.len());
    let mut sum = 0_u128;
    for (share, factor) in shares {
        let number = u128::from(share.numerator) * u128::from(*factor);
        let number = number.checked_mul(common / u128::from(share.denominator))?;
        sum = sum.checked_add(number)?;
        numbers.push(number);
    }
    Some(numbers)
}

/// The numbers to 24 bits behind the point: a numerator has 64 bits and a factor 32, so they fit.
fn rounded(shares: &[(Share, u32)]) -> Vec<u128> {
    let number = |(share, factor): &(Share, u32)| {
        let number = u128::from(share.numerator) * u128::from(*factor);
        let number = (number << 24) / u128::from(share.denominator);
        match share.numerator {
            0 => 0,
            _ => number.max(1),
        }
    };
    shares.iter().map(number).collect()
}

/// `weight` of `sum`, as a part of 31 bits.
fn scale_down(weight: u128, sum: u128) -> u128 {
    // The sum of a resource's weights may have more than 97 bits, and then the low ones are dropped.
    let shift = (128 - sum.leading_zeros()).saturating_sub(97);
    let (weight, sum) = (weight >> shift, (sum >> shift).max(1));
    weight * u128::from(u32::MAX >> 1) / sum
}

fn narrow(weight: u128) -> u32 {
    u32::try_from(weight).unwrap_or(u32::MAX)
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(numerator: u64, denominator: u64) -> Share {
        Share {
            numerator,
            denominator,
        }
    }

    #[test]
    fn weights_stay_as_they_were_given() {
        let shares = [(share(100, 1), 1), (share(200, 1), 1), (share(0, 1), 1)];
        assert_eq!(whole(&shares), [100, 200, 0]);
    }

    /// Two localities of weight 3 and 1, with three endpoints and one.
    #[test]
    fn fractions_become_the_smallest_whole_numbers() {
        let shares = [share(3, 3), share(3, 3), share(3, 3), share(1, 1)];
        assert_eq!(whole(&shares.map(|share| (share, 1))), [1, 1, 1, 1]);
        let shares = [share(1, 3), share(1, 3), share(1, 3), share(2, 2)];
        assert_eq!(whole(&shares.map(|share| (share, 1))), [1, 1, 1, 3]);
    }

    #[test]
    fn the_weight_of_a_cluster_is_a_factor() {
        let shares = [(share(1, 1), 90), (share(2, 1), 90), (share(1, 1), 10)];
        assert_eq!(whole(&shares), [90, 180, 10]);
    }

    #[test]
    fn the_largest_weights_keep_their_ratio() {
        let max = u64::from(u32::MAX) * u64::from(u32::MAX);
        let weights = whole(&[
            (share(max, 1), u32::MAX),
            (share(max / 3, 1), u32::MAX),
            (share(1, 1), 1),
        ]);
        let ratio = f64::from(weights[0]) / f64::from(weights[1]);
        assert!((ratio - 3.0).abs() < 1e-6, "{weights:?}");
        assert_eq!(weights[2], 1, "it must get some connections");
    }

    proptest! {
        /// The sum has 32 bits, the ratio is kept, and only 0 is 0.
        #[test]
        fn any_weights_become_weights_in_their_ratio(
            shares in proptest::collection::vec(
                (0..=u64::from(u32::MAX) * u64::from(u32::MAX), 1..=u64::MAX >> 20, 1..=u32::MAX),
                1..12,
            )
        ) {
            let shares: Vec<_> = shares.into_iter().map(|(n, d, f)| (share(n, d), f)).collect();
            let weights = whole(&shares);
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            prop_assert!(sum <= u64::from(u32::MAX));
            let value = |(share, factor): &(Share, u32)| {
                share.numerator as f64 * f64::from(*factor) / share.denominator as f64
            };
            let total: f64 = shares.iter().map(value).sum();
            for (given, weight) in shares.iter().zip(&weights) {
                prop_assert_eq!(given.0.numerator == 0, *weight == 0);
                let expected = value(given) / total;
                let got = f64::from(*weight) / sum as f64;
                prop_assert!((expected - got).abs() < 1e-6, "{} {}", expected, got);
            }
        }
    }
}
