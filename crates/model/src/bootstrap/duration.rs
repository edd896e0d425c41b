//! Durations in proto JSON form: `600s`, `0.25s`.
//!
//! The refresh interval of TLS credentials has this form. The form is checked here, because serde has no parser for it,
//! and a malformed interval must be an error.

use std::time::Duration;

/// Reads a duration greater than zero.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (seconds, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let seconds = seconds
        .parse()
        .ok()
        .filter(|seconds| *seconds <= MAX_SECONDS)?;
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration::new(seconds, nanos)).filter(|duration| !duration.is_zero())
}

/// The greatest number of seconds in a `google.protobuf.Duration`: about ten thousand years.
const MAX_SECONDS: u64 = 315_576_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("600s", Duration::from_secs(600)),
            ("0.25s", Duration::from_millis(250)),
            ("1.000000001s", Duration::new(1, 1)),
            ("315576000000s", Duration::from_secs(MAX_SECONDS)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        let bad = [
            "",
            "s",
            "1",
            "-1s",
            "+1s",
            "0s",
            "0.0s",
            "1.s",
            ".5s",
            "1.0000000001s",
            "1e3s",
            "1m",
            "315576000001s",
            "99999999999999999999s",
            " 1s",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
