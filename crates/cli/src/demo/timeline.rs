//! The steps of the demo and their times.
//!
//! The times are fractions of the demo's duration, so that a longer demo takes the same steps.

use std::time::Duration;

/// The steps in order. A step after a return leaves the client a second or two, because it waits that
/// long between attempts to connect.
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

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The good configuration is served again.
    Heal,
    /// The backend gets SIGKILL.
    Kill(&'static str),
    /// A configuration that clients must refuse is served.
    PushBadConfig,
    /// The backend is started again on its old port.
    Return(&'static str),
    /// The backend gets SIGTERM.
    Stop(&'static str),
    /// The weight of a zone changes.
    Weigh(&'static str, u32),
}

/// The steps of a demo of this duration, with the time when each is due.
pub(super) fn steps(duration: Duration) -> impl Iterator<Item = (Duration, Step)> {
    TIMELINE
        .into_iter()
        .map(move |(part, step)| (duration.mul_f64(part), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_in_order_and_a_second_apart_in_twenty_seconds() {
        let steps: Vec<_> = steps(Duration::from_secs(20)).collect();
        assert_eq!(steps.len(), TIMELINE.len());
        assert!(
            steps
                .windows(2)
                .all(|pair| pair[1].0 - pair[0].0 >= Duration::from_secs(1))
        );
        assert!(steps.iter().all(|(due, _)| *due <= Duration::from_secs(18)));
    }

    #[test]
    fn every_backend_that_leaves_comes_back() {
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
