//! The attempts to end sockets: each socket is ended once, and a failed attempt is made again.

use std::collections::{HashMap, HashSet};

use super::Routed;

/// The most attempts for one socket. Most failures are over by then, and a missing right never is.
const MOST: u32 = 5;

/// The sockets that were ended or tried. The map has them until their programs close them.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    made: HashMap<Routed, u32>,
    /// Those of them that failed and are to be tried again.
    due: HashSet<Routed>,
}

impl Attempts {
    /// Takes the sockets whose backends are gone, and returns those to end now. All others are forgotten,
    /// because they were closed or are connected elsewhere.
    pub(crate) fn begin(&mut self, gone: Vec<Routed>) -> Vec<Routed> {
        let mut made = HashMap::with_capacity(gone.len());
        let mut now = Vec::new();
        for socket in gone {
            let before = self.made.get(&socket).copied().unwrap_or_default();
            let is_due = before == 0 || self.due.contains(&socket);
            let attempts = before + u32::from(is_due);
            if made.insert(socket, attempts).is_none() && is_due {
                now.push(socket);
            }
        }
        self.made = made;
        self.due.clear();
        now
    }

    /// Takes note that sockets could not be ended, and returns the number of those that are given up.
    pub(crate) fn failed(&mut self, sockets: Vec<Routed>) -> usize {
        let mut given_up = 0;
        for socket in sockets {
            match self.made.get(&socket) {
                Some(attempts) if *attempts < MOST => drop(self.due.insert(socket)),
                Some(_) => given_up += 1,
                None => {}
            }
        }
        given_up
    }

    /// True if sockets are to be tried again.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::{BackendId, Pair, ServiceId};
    use crate::model::Protocol;

    fn socket(cookie: u64) -> Routed {
        Routed {
            cookie,
            pair: Pair {
                service: ServiceId(1),
                backend: BackendId(1),
            },
            backend: ([10, 0, 0, 1], 53).into(),
            protocol: Protocol::Udp,
        }
    }

    /// N-79: a socket that could not be ended is tried again, a few times; one that was ended is not.
    #[test]
    fn a_failed_attempt_is_made_again_and_a_good_one_is_not() {
        let (good, bad) = (socket(1), socket(2));
        let mut attempts = Attempts::default();
        assert_eq!(attempts.begin(vec![good, bad, bad]), [good, bad]);
        for _ in 1..MOST {
            assert_eq!(attempts.begin(vec![good, bad]), [], "under way");
            assert_eq!(attempts.failed(vec![bad]), 0);
            assert!(attempts.is_due());
            assert_eq!(attempts.begin(vec![good, bad]), [bad]);
            assert!(!attempts.is_due());
        }
        assert_eq!(attempts.failed(vec![bad]), 1, "given up");
        assert_eq!(attempts.begin(vec![good, bad]), []);
    }

    /// A socket that was connected elsewhere meanwhile is not ended, and one that comes back is new.
    #[test]
    fn a_socket_that_is_not_gone_any_more_is_forgotten() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.begin(vec![socket(1)]), [socket(1)]);
        assert_eq!(attempts.begin(vec![]), []);
        assert_eq!(attempts.failed(vec![socket(1)]), 0);
        assert!(!attempts.is_due());
        assert_eq!(attempts.begin(vec![socket(1)]), [socket(1)]);
    }
}
