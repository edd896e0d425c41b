//! What happens when. The times are parts of the whole, so that a longer demo is a slower one.

use std::time::Duration;

/// The times leave room for a backend's return to be noticed: a client waits a second or two between
/// attempts to connect.
const TIMELINE: [(f64, Step); 8] = [
    (0.10, Step::Stop("a1")),
    (0.22, Step::Return("a1")),
    (0.34, Step::Kill("b2")),
    (0.44, Step::Return("b2")),
    (0.57, Step::Weigh("c", 4)),
    (0.70, Step::PushBadConfig),
    (0.82, Step::Heal),
    (0.88, Step::Weigh("c", 1)),
];

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The good configuration is served again.
    Heal,
    /// SIGKILL.
    Kill(&'static str),
    /// A configuration that clients must refuse is served.
    PushBadConfig,
    /// Started again on its old port.
    Return(&'static str),
    /// SIGTERM.
    Stop(&'static str),
    /// A zone's weight changes.
    Weigh(&'static str, u32),
}

/// The steps of a demo of this length, and when they are due.
pub(super) fn script(duration: Duration) -> impl Iterator<Item = (Duration, Step)> {
    TIMELINE
        .into_iter()
        .map(move |(part, step)| (duration.mul_f64(part), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_in_order_and_a_second_apart_in_twenty_seconds() {
        let steps: Vec<_> = script(Duration::from_secs(20)).collect();
        assert_eq!(steps.len(), TIMELINE.len());
        assert!(
            steps
                .windows(2)
                .all(|pair| pair[1].0 - pair[0].0 >= Duration::from_secs(1))
        );
        assert!(steps.iter().all(|(due, _)| *due <= Duration::from_secs(18)));
    }

    #[test]
    fn whoever_leaves_comes_back() {
        let mut away = Vec::new();
        for (_, step) in TIMELINE {
            match step {
                Step::Kill(name) | Step::Stop(name) => away.push(name),
                Step::Return(name) => away.retain(|gone| *gone != name),
                Step::Heal | Step::PushBadConfig | Step::Weigh(..) => {}
            }
        }
        assert!(away.is_empty(), "{away:?}");
    }
}
