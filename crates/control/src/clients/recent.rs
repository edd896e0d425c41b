//! The times at which resources were sent, as far as a few bytes hold them.
//!
//! A client with thousands of resources was sent most of them in its first response. So the time of
//! that is kept, and those of the names that were sent last.

use std::sync::Arc;
use std::time::Instant;

/// The number of names whose times are kept.
const NAMES: usize = 8;

/// The times at which the resources of one type were sent.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The names that were sent last, the newest at the end.
    names: Vec<(Arc<str>, Instant)>,
    /// The time of the first responses, which had many names.
    first: Option<Instant>,
    /// True if a time was forgotten, so that `first` need not be the time of all others.
    forgot: bool,
}

impl Recent {
    /// Notes that these names were sent.
    pub(super) fn sent<'a>(&mut self, names: impl Iterator<Item = &'a Arc<str>>, now: Instant) {
        let mut few: Vec<_> = names.take(NAMES + 1).collect();
        if few.len() > NAMES {
            if self.names.is_empty() && !self.forgot {
                self.first = Some(now);
            } else {
                self.forgot = true;
                self.names = Vec::new();
            }
            few.clear();
        }
        for name in few {
            self.names.retain(|(sent, _)| sent != name);
            if self.names.len() == NAMES {
                self.names.remove(0);
                self.forgot = true;
            }
            self.names.reserve_exact(1);
            self.names.push((Arc::clone(name), now));
        }
    }

    /// The time at which a name was sent; `None` if it is not known.
    pub(super) fn time(&self, name: &str) -> Option<Instant> {
        let mut names = self.names.iter();
        let recent = names.find(|(sent, _)| &**sent == name);
        let first = self.first.filter(|_| !self.forgot);
        recent.map_or(first, |(_, at)| Some(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn names(range: std::ops::Range<usize>) -> Vec<Arc<str>> {
        range.map(|number| format!("r{number}").into()).collect()
    }

    /// F-03: a time that is shown is right, and one that is forgotten is not shown.
    #[test]
    fn times_are_right_or_unknown() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut recent = Recent::default();
        recent.sent(names(0..100).iter(), at(0));
        recent.sent(names(100..200).iter(), at(0));
        recent.sent(names(7..8).iter(), at(1));
        assert_eq!(recent.time("r7"), Some(at(1)));
        assert_eq!(recent.time("r8"), Some(at(0)));

        recent.sent(names(0..8).iter(), at(2));
        assert_eq!(recent.time("r7"), Some(at(2)), "sent again");
        assert_eq!(recent.time("r8"), Some(at(0)));
        recent.sent(names(8..9).iter(), at(3));
        assert_eq!(recent.time("r8"), Some(at(3)));
        assert_eq!(
            recent.time("r0"),
            None,
            "r0 made room, so others may have too"
        );
        assert_eq!(recent.time("r99"), None);

        recent.sent(names(0..20).iter(), at(4));
        assert_eq!(recent.time("r8"), None, "it is one of the many");
        recent.sent(names(1..2).iter(), at(5));
        assert_eq!(recent.time("r1"), Some(at(5)));
    }
}
