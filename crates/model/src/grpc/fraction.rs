//! Shares of calls, which are drawn call by call.
//!
//! Resources give shares as fractions of several denominators. All are scaled to a million, so that they can be
//! compared.

use std::fmt;

use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};

use crate::Validator;

const MILLION: u32 = 1_000_000;

/// A share of calls, in millionths.
///
/// ```
/// # use crowfly_model::grpc::Fraction;
/// let tenth = Fraction::per_million(100_000);
/// assert_eq!(tenth.to_string(), "10%");
/// // The caller draws a number, uniform over all of `u64`, because this crate has no randomness.
/// assert!(tenth.takes(0));
/// assert!(!tenth.takes(u64::MAX / 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(u32);

impl Fraction {
    /// All calls.
    pub const ALL: Self = Self(MILLION);

    /// A share of `count` calls of a million. A count above a million means all calls.
    pub const fn per_million(count: u32) -> Self {
        if count < MILLION {
            Self(count)
        } else {
            Self::ALL
        }
    }

    /// The number of calls among a million.
    ///
    /// ```
    /// # use crowfly_model::grpc::Fraction;
    /// assert_eq!(Fraction::per_million(5_000_000).millionths(), 1_000_000);
    /// ```
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// True if the call that drew `draw` is one of the share. Each share needs a number of its own, because
    /// decisions by one number would depend on each other.
    ///
    /// ```
    /// # use crowfly_model::grpc::Fraction;
    /// assert!(Fraction::ALL.takes(u64::MAX));
    /// assert!(!Fraction::per_million(0).takes(0));
    /// ```
    pub const fn takes(self, draw: u64) -> bool {
        let place = (draw as u128 * MILLION as u128) >> 64;
        place < self.0 as u128
    }
}

/// The share in percent, without zeros at the end.
impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let rest = format!("{rest:04}");
        write!(f, "{whole}.{}%", rest.trim_end_matches('0'))
    }
}

/// Scales in 64 bits, because 32 bits would overflow. A share above 100 % becomes 100 % (S3-12).
pub(super) fn parse(proto: FractionalPercent, v: &mut Validator) -> Option<Fraction> {
    let scale = MILLION / denominator(proto, v)?;
    let scaled = u64::from(proto.numerator) * u64::from(scale);
    Some(Fraction::per_million(
        u32::try_from(scaled).unwrap_or(u32::MAX),
    ))
}

/// The denominator of a share, which divides a million; `None` after an error.
pub(super) fn denominator(proto: FractionalPercent, v: &mut Validator) -> Option<u32> {
    match DenominatorType::try_from(proto.denominator) {
        Ok(DenominatorType::Hundred) => Some(100),
        Ok(DenominatorType::TenThousand) => Some(10_000),
        Ok(DenominatorType::Million) => Some(MILLION),
        Err(_) => {
            let got = proto.denominator;
            v.error_at(
                "denominator",
                format!("expected HUNDRED, TEN_THOUSAND or MILLION, got {got}"),
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_takes_its_part_of_all_draws() {
        for millionths in [1, 9_999, 250_000, 999_999] {
            let share = Fraction::per_million(millionths);
            let limit = ((u128::from(millionths) << 64).div_ceil(1_000_000)) as u64;
            assert!(share.takes(limit - 1), "{share}");
            assert!(!share.takes(limit), "{share}");
        }
    }

    #[test]
    fn a_share_prints_as_percent() {
        for (millionths, text) in [
            (0, "0%"),
            (1, "0.0001%"),
            (5_000, "0.5%"),
            (123_456, "12.3456%"),
            (1_000_000, "100%"),
        ] {
            assert_eq!(Fraction::per_million(millionths).to_string(), text);
        }
    }
}
