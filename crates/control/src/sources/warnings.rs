//! The warnings about a configuration, of which each is logged once.
//!
//! A warning stands until its cause is changed. If each reload logged all of them, the few that an
//! operator has just caused would be lost among them.

use std::collections::BTreeSet;

use tracing::{info, warn};

/// The warnings about the last good configuration.
#[derive(Debug, Default)]
pub(super) struct Warnings(BTreeSet<String>);

impl Warnings {
    /// Logs the warnings that are new, and the number of those that stand.
    pub(super) fn log(&mut self, warnings: Vec<String>) {
        let (new, standing) = self.take(warnings);
        for warning in new {
            warn!("{warning}");
        }
        if standing > 0 {
            info!(standing, "warnings about the configuration stand");
        }
    }

    /// Takes the warnings about a newer configuration. Returns those that are new, and the number of
    /// the others.
    fn take(&mut self, warnings: Vec<String>) -> (Vec<String>, usize) {
        let before = std::mem::replace(&mut self.0, warnings.iter().cloned().collect());
        let all = warnings.len();
        let is_new = |warning: &String| !before.contains(warning);
        let new: Vec<_> = warnings.into_iter().filter(is_new).collect();
        let standing = all - new.len();
        (new, standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A warning that comes back after it was gone is new again.
    #[test]
    fn each_warning_is_new_once() {
        let mut warnings = Warnings::default();
        let mut take = |texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned());
            let (new, standing) = warnings.take(texts.collect());
            (new.join(" "), standing)
        };
        assert_eq!(take(&["a", "b"]), ("a b".to_owned(), 0));
        assert_eq!(take(&["a", "b"]), (String::new(), 2));
        assert_eq!(take(&["b", "c"]), ("c".to_owned(), 1));
        assert_eq!(take(&["a", "c"]), ("a".to_owned(), 1));
        assert_eq!(take(&[]), (String::new(), 0));
    }
}
