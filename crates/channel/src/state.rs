//! The connectivity state of a channel.
//!
//! A program can read and watch it, because a readiness probe must not have to make a call.

use std::fmt;
use std::sync::Arc;

use crowfly_lb::Connectivity;

use crate::published::Published;

/// The state of a [`Channel`](crate::Channel), as gRPC in any language has it.
///
/// The state is the best one of all the clusters that calls may go to: READY before CONNECTING before IDLE before
/// TRANSIENT_FAILURE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectivityState {
    /// Connections are being made, or there is no configuration yet. Calls wait.
    Connecting,
    /// The channel has no connections, and makes none until a call wants one. Either no call was
    /// made for a while ([`ChannelBuilder::idle_timeout`](crate::ChannelBuilder::idle_timeout)), or
    /// the policy of a cluster waits for the first call.
    Idle,
    /// Calls can be sent.
    Ready,
    /// The channel has no usable configuration, or no backend can be reached. Calls fail, unless
    /// they [wait for ready](crate::WaitForReady).
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

/// Follows the state of a channel. A watch does not keep the channel open.
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
    known: Arc<Published<Known>>,
    last: ConnectivityState,
}

impl StateWatch {
    /// Another watch, from the present state on.
    pub(crate) fn renewed(&self) -> Self {
        Self {
            known: Arc::clone(&self.known),
            last: self.present(),
        }
    }

    /// The present state, whether or not this watch has returned it.
    pub(crate) fn present(&self) -> ConnectivityState {
        self.known.load().state
    }

    /// The state that this watch has returned last.
    pub fn state(&self) -> ConnectivityState {
        self.last
    }

    /// Waits for another state than [`state`](Self::state) and returns it. A state that did not last may be
    /// left out. `None` once the channel is gone. Cancel-safe.
    pub async fn changed(&mut self) -> Option<ConnectivityState> {
        let last = self.last;
        let found = self.known.find(|known| match known.state {
            state if state != last => Some(Some(state)),
            _ => known.is_final.then_some(None),
        });
        self.last = found.await?;
        Some(self.last)
    }
}

/// Publishes states to watches. The last state that it publishes is final.
#[derive(Debug)]
pub(crate) struct StateTeller(Arc<Published<Known>>);

impl StateTeller {
    pub(crate) fn new(state: ConnectivityState) -> Self {
        let known = Known {
            state,
            is_final: false,
        };
        Self(Arc::new(Published::new(known)))
    }

    pub(crate) fn watch(&self) -> StateWatch {
        StateWatch {
            known: Arc::clone(&self.0),
            last: self.0.load().state,
        }
    }

    pub(crate) fn tell(&self, state: ConnectivityState) {
        if self.0.load().state != state {
            self.0.publish(Known {
                state,
                is_final: false,
            });
        }
    }
}

impl Drop for StateTeller {
    fn drop(&mut self) {
        let state = self.0.load().state;
        self.0.publish(Known {
            state,
            is_final: true,
        });
    }
}

/// The state of a channel. The state is final once the channel is gone.
#[derive(Debug)]
struct Known {
    state: ConnectivityState,
    is_final: bool,
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use ConnectivityState::{Connecting, Ready, TransientFailure};

    #[tokio::test]
    async fn a_watch_tells_what_it_has_not_told() {
        let teller = StateTeller::new(Connecting);
        teller.tell(Ready);
        let mut watch = teller.watch();
        assert_eq!(watch.state(), Ready);
        teller.tell(Connecting);
        teller.tell(TransientFailure);
        assert_eq!(watch.changed().await, Some(TransientFailure));
        assert_eq!(watch.state(), TransientFailure);
        teller.tell(Ready);
        drop(teller);
        assert_eq!(watch.changed().await, Some(Ready));
        assert_eq!(watch.changed().await, None);
    }

    #[tokio::test]
    async fn a_watch_that_waits_hears_of_the_end() {
        let teller = StateTeller::new(Connecting);
        let mut watch = teller.watch();
        let mut changed = Box::pin(watch.changed());
        teller.tell(Connecting);
        assert!(futures_util::poll!(&mut changed).is_pending());
        drop(teller);
        assert_eq!(futures_util::poll!(&mut changed), Poll::Ready(None));
    }
}
