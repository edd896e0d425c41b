//! What a channel is up to, for those who want to know without making a call.

use std::fmt;

use crowfly_lb::Connectivity;
use tokio::sync::watch;

/// The state of a [`Channel`](crate::Channel), as gRPC in any language has it.
///
/// It is the best state of all the clusters that calls may go to: READY before CONNECTING before IDLE
/// before TRANSIENT_FAILURE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectivityState {
    /// Connections are being made, or there is no configuration yet. Calls wait.
    Connecting,
    /// There are no connections, and none are made until a call wants one: no call was made for a
    /// while ([`ChannelBuilder::idle_timeout`](crate::ChannelBuilder::idle_timeout)), or the policy of
    /// a cluster waits for the first one.
    Idle,
    /// Calls can be sent.
    Ready,
    /// There is no usable configuration, or no backend can be reached. Calls fail, unless they
    /// [wait for ready](crate::WaitForReady).
    TransientFailure,
}

impl From<Connectivity> for ConnectivityState {
    fn from(state: Connectivity) -> Self {
        match state {
            Connectivity::Connecting => Self::Connecting,
            Connectivity::Idle => Self::Idle,
            Connectivity::Ready => Self::Ready,
            Connectivity::TransientFailure => Self::TransientFailure,
        }
    }
}

impl fmt::Display for ConnectivityState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "CONNECTING",
            Self::Idle => "IDLE",
            Self::Ready => "READY",
            Self::TransientFailure => "TRANSIENT_FAILURE",
        })
    }
}

/// Follows the state of a channel. It does not keep the channel alive.
///
/// ```no_run
/// # async fn example(channel: crowfly::Channel) {
/// use crowfly::ConnectivityState;
///
/// let mut watch = channel.watch_state();
/// while watch.state() != ConnectivityState::Ready && watch.changed().await.is_some() {}
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StateWatch {
    states: watch::Receiver<ConnectivityState>,
    last: ConnectivityState,
}

impl StateWatch {
    pub(crate) fn new(states: watch::Receiver<ConnectivityState>) -> Self {
        let last = *states.borrow();
        Self { states, last }
    }

    /// The state that was told last.
    pub fn state(&self) -> ConnectivityState {
        self.last
    }

    /// Waits for another state than [`state`](Self::state) and tells it. A state that did not last
    /// may be passed over. `None` once the channel is gone. Cancel-safe.
    pub async fn changed(&mut self) -> Option<ConnectivityState> {
        let last = self.last;
        let other = self.states.wait_for(|state| *state != last).await;
        self.last = *other.ok()?;
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectivityState::{Connecting, Ready, TransientFailure};

    #[tokio::test]
    async fn a_watch_tells_what_it_has_not_told() {
        let states = watch::Sender::new(Connecting);
        states.send_replace(Ready);
        let mut watch = StateWatch::new(states.subscribe());
        assert_eq!(watch.state(), Ready);
        states.send_replace(Connecting);
        states.send_replace(TransientFailure);
        assert_eq!(watch.changed().await, Some(TransientFailure));
        assert_eq!(watch.state(), TransientFailure);
        drop(states);
        assert_eq!(watch.changed().await, None);
    }
}
