//! Names that clients choose and that are labels of metrics. Their number is limited, because clients could otherwise
//! fill our memory, and that of all systems that read the metrics.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The label of all names that have none of their own.
pub(crate) const OTHERS: &str = "(others)";

/// The most characters of a name in a label.
const MAX_CHARACTERS: usize = 100;

/// The names of one kind that have a label of their own: those that came first.
#[derive(Debug)]
pub(crate) struct LabelNames {
    most: usize,
    names: Mutex<BTreeSet<String>>,
}

impl LabelNames {
    /// At most `most` names.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            names: Mutex::default(),
        }
    }

    /// The label of a name.
    pub(crate) fn label_of(&self, name: &str) -> String {
        let name: String = name.chars().take(MAX_CHARACTERS).collect();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(&name) {
            return name;
        }
        if names.len() == self.most {
            return OTHERS.to_owned();
        }
        names.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-11: a client that invents names gets a hundred labels, and no more.
    #[test]
    fn invented_names_share_a_label() {
        let names = LabelNames::new(100);
        for index in 0..100 {
            let name = format!("node-{index}");
            assert_eq!(names.label_of(&name), name);
        }
        assert_eq!(names.label_of("one-more"), OTHERS);
        assert_eq!(names.label_of("node-7"), "node-7");
        let long = LabelNames::new(1).label_of(&"x".repeat(1 << 20));
        assert_eq!(long.len(), MAX_CHARACTERS);
    }
}
