//! The rules of RE2 about repetitions. A repetition is not repeated again without a group, and counts inside counts are
//! limited, because they multiply the size of a pattern.

use super::InvalidRegex;

/// The greatest count, and the greatest product of counts in groups inside of each other.
const MAX_COUNT: u32 = 1000;

/// The least count, and the greatest one if there is one.
pub(super) type Range = (u32, Option<u32>);

/// The counts of the repetitions in a pattern, read from left to right.
#[derive(Debug)]
pub(super) struct Counts {
    /// The greatest product of counts in each group that is open. The first one is the whole pattern.
    groups: Vec<u32>,
    /// The greatest product in the expression that was read last.
    last: u32,
    /// True if that expression is a repetition.
    is_repeated: bool,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            groups: vec![1],
            last: 1,
            is_repeated: false,
        }
    }
}

impl Counts {
    pub(super) fn is_in_group(&self) -> bool {
        self.groups.len() > 1
    }

    /// An expression without a part in it.
    pub(super) fn atom(&mut self) {
        self.last = 1;
        self.is_repeated = false;
    }

    pub(super) fn open(&mut self) {
        self.groups.push(1);
        self.atom();
    }

    pub(super) fn close(&mut self) -> Result<(), InvalidRegex> {
        let Some(group) = self.groups.pop().filter(|_| !self.groups.is_empty()) else {
            return Err(InvalidRegex("unopened group".to_owned()));
        };
        self.atom();
        self.note(group);
        Ok(())
    }

    /// A repetition of the last expression, with a range if it has counts.
    pub(super) fn repeat(&mut self, range: Option<Range>) -> Result<(), InvalidRegex> {
        if self.is_repeated {
            let reason = "a repetition of a repetition";
            return Err(InvalidRegex(reason.to_owned()));
        }
        self.is_repeated = true;
        let Some((least, most)) = range else {
            return Ok(());
        };
        // RE2 counts the greatest number, or the least one if there is no greatest.
        let product = self.last.saturating_mul(most.unwrap_or(least).max(1));
        if least > MAX_COUNT || product > MAX_COUNT {
            let reason = format!("a count of more than {MAX_COUNT} in all");
            return Err(InvalidRegex(reason));
        }
        self.note(product);
        Ok(())
    }

    fn note(&mut self, product: u32) {
        self.last = product;
        if let Some(group) = self.groups.last_mut() {
            *group = product.max(*group);
        }
    }
}

/// Reads `n}`, `n,}` or `n,m}` at the beginning of `ahead`. Returns the text before the brace, and the range.
pub(super) fn range(ahead: &str) -> Option<(&str, Range)> {
    let (inside, _) = ahead.split_once('}')?;
    let range = match inside.split_once(',') {
        None => {
            let count = number(inside)?;
            (count, Some(count))
        }
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((inside, range))
}

/// Reads a number without leading zeros. A number that is too large is read as the largest one.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let has_zeros = text.len() > 1 && text.starts_with('0');
    (is_number && !has_zeros).then(|| text.parse().unwrap_or(u32::MAX))
}
