//! The Unix socket on which `services` and `trace` ask the agent.
//!
//! These commands ask the agent and do not read the maps, because the maps have neither sources nor reasons.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::view::View;

/// The pause after a failure. One that lasts, such as no file descriptor, would fill the log and a CPU.
const PAUSE: Duration = Duration::from_secs(1);

/// A socket for questions.
#[derive(Debug)]
pub(super) struct Questions {
    socket: UnixListener,
    /// The time before which no question is accepted, because accepting one has failed.
    pause: Option<Instant>,
    /// The last failure to accept a question. It is logged already. A question that is accepted ends it.
    failure: Option<String>,
}

impl Questions {
    pub(super) fn new(socket: UnixListener) -> Self {
        Self {
            socket,
            pause: None,
            failure: None,
        }
    }

    /// The next program that asks. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> UnixStream {
        loop {
            if let Some(pause) = self.pause {
                sleep_until(pause).await;
                self.pause = None;
            }
            match self.socket.accept().await {
                Ok((asker, _)) => {
                    self.failure = None;
                    return asker;
                }
                Err(error) => self.fail(&error),
            }
        }
    }

    /// Says a failure that lasts once.
    fn fail(&mut self, error: &io::Error) {
        let failure = error.to_string();
        if self.failure.as_ref() != Some(&failure) {
            warn!("the socket for questions: {failure}; it is tried again every second");
        }
        self.failure = Some(failure);
        self.pause = Some(Instant::now() + PAUSE);
    }
}

/// Writes the state of the agent, as JSON, and closes.
pub(super) fn answer(view: View, mut stream: UnixStream) {
    tokio::spawn(async move {
        // On another thread, because thousands of frontends take a while.
        let answer = spawn_blocking(move || serde_json::to_vec(&view)).await;
        let answer = match answer.map_err(io::Error::other) {
            Ok(answer) => answer.map_err(io::Error::from),
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => {
                if let Err(error) = stream.write_all(&answer).await {
                    debug!("a question was not waited for: {error}");
                }
            }
            Err(error) => warn!("a question has no answer: {error}"),
        }
    });
}
