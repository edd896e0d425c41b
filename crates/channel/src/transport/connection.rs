//! Connecting, and what ends a connection.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::dial::Dialled;
use super::error::{ConnectError, ConnectPhase};
use super::http2::{Backend, Client, Config, Error, GoAway, Socket, Writes};
use super::keepalive::{self, Heard, Keepalive};
use super::profile::Profile;
use super::sender::Sender;
use super::shared::Shared;

/// A server that wants TLS answers plaintext with an alert or hangs up, and neither is HTTP/2.
const WANTS_TLS: &str = " (we speak plaintext: does the server want TLS?)";

/// One HTTP/2 connection that is ready for calls.
///
/// The connection lives in a task of its own. That task ends when the server closes, or when this
/// handle and all [`Sender`]s are dropped and the last open stream has ended: releasing a
/// connection never breaks a call.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    shared: Arc<Shared>,
    closing: watch::Receiver<Option<Closing>>,
    draining: bool,
}

impl Connection {
    /// Connects to `address` and returns once the server's SETTINGS have been read.
    ///
    /// A server that accepts and stays silent (a stopped process; its kernel completes the TCP
    /// handshake) is therefore never taken for a working one. `connect_timeout` covers TCP, TLS
    /// and SETTINGS together. Dropping the future abandons the attempt.
    ///
    /// Must be called within a tokio runtime.
    pub async fn connect(
        address: SocketAddr,
        profile: &Profile,
        connect_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let attempt = Attempt {
            address,
            deadline: after(connect_timeout),
            connect_timeout,
            keepalive: profile.keepalive(),
            config: profile.http2(),
            backend: profile.backend(),
            hint: "",
        };
        let dialled = attempt
            .phase(ConnectPhase::Connect, profile.dial(address))
            .await?;
        match profile.tls() {
            None => {
                let attempt = Attempt {
                    hint: WANTS_TLS,
                    ..attempt
                };
                let socket = Socket {
                    writes: dialled.writes(),
                    io: dialled,
                    probe: Dialled::is_hung_up,
                };
                attempt.http2(socket).await
            }
            Some(tls) => {
                let handshake = tls.handshake(dialled);
                let stream = attempt.phase(ConnectPhase::Tls, handshake).await?;
                let socket = Socket {
                    io: stream,
                    probe: |stream| stream.get_ref().0.is_hung_up(),
                    writes: Writes::Layered,
                };
                attempt.http2(socket).await
            }
        }
    }

    /// What calls are sent through; cheap to clone.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Whether the server complained of too many PINGs (gRFC A8).
    pub fn has_too_many_pings(&self) -> bool {
        self.shared.too_many_pings()
    }

    /// Whether a call was sent on this connection.
    pub fn has_carried_calls(&self) -> bool {
        self.shared.has_carried_calls()
    }

    /// Waits for the end to come nearer: at most one [`Closing::Draining`], then
    /// [`Closing::Closed`], again and again. Dropping the future loses nothing.
    pub async fn closing(&mut self) -> Closing {
        loop {
            match self.closing.borrow_and_update().clone() {
                Some(closed @ Closing::Closed(_)) => return closed,
                Some(draining) if !self.draining => {
                    self.draining = true;
                    return draining;
                }
                _ => {}
            }
            if self.closing.changed().await.is_err() {
                return Closing::Closed("the connection task is gone".into());
            }
        }
    }
}

/// How near a connection is to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It is over; open streams have failed.
    Closed(Arc<str>),
    /// No new streams; open ones go on to their end. There is no GOAWAY when the connection has
    /// merely used up its stream ids.
    Draining(Option<GoAway>),
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(reason) => write!(f, "the connection is closed ({reason})"),
            Self::Draining(Some(goaway)) => goaway.fmt(f),
            Self::Draining(None) => f.write_str("the connection has used up its stream ids"),
        }
    }
}

/// One attempt to connect: its steps share a deadline.
struct Attempt {
    address: SocketAddr,
    deadline: Instant,
    connect_timeout: Duration,
    keepalive: Option<Keepalive>,
    config: Config,
    backend: Backend,
    /// A hint for the reader of the error, if the server does not speak HTTP/2.
    hint: &'static str,
}

impl Attempt {
    async fn phase<T, E: fmt::Display>(
        &self,
        phase: ConnectPhase,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ConnectError> {
        let reason = match timeout_at(self.deadline, step).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("timed out after {:?}", self.connect_timeout),
        };
        Err(ConnectError {
            address: self.address,
            phase,
            reason: reason.into(),
        })
    }

    async fn http2<IO>(&self, socket: Socket<IO>) -> Result<Connection, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let keepalive = self
            .keepalive
            .map(|settings| (settings, Arc::new(Heard::new())));
        let mut shared = Shared::new(self.address, Handle::current());
        if let Some((_, heard)) = &keepalive {
            shared = shared.listening(Arc::clone(heard));
        }
        let shared = Arc::new(shared);
        let listener = shared.clone();
        let observe = move |event| listener.handle_event(event);
        let ready = async {
            let connected = Client::connect(self.backend, socket, self.config, observe);
            let (client, mut driver) = connected.await?;
            read_settings(&mut driver, &shared).await?;
            Ok::<_, Error>((client, driver))
        };
        let ready = async {
            let outcome = ready.await;
            outcome.map_err(|error| format!("{error}{}", self.hint))
        };
        let (client, driver) = self.phase(ConnectPhase::Settings, ready).await?;
        debug!(address = %self.address, "connected");

        let closing = shared.watch();
        let watched = shared.clone();
        let keepalive = keepalive.map(|keepalive| (keepalive, client.pings()));
        let unresponsive = async move {
            match keepalive {
                Some(((settings, heard), pings)) => {
                    keepalive::watch(pings, heard, settings, watched).await
                }
                None => pending().await,
            }
        };
        tokio::spawn(drive(driver, unresponsive, shared.clone()));
        Ok(Connection {
            sender: Sender::new(client, Arc::clone(&shared)),
            shared,
            closing,
            draining: false,
        })
    }
}

/// The moment a span of time from now; far away, if it is too long to be one.
fn after(span: Duration) -> Instant {
    let far_away = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(span).unwrap_or(now + far_away)
}

/// Drives the connection in place until the server's SETTINGS have come.
///
/// It is not spawned before that, so an attempt that times out or is dropped leaves nothing behind.
async fn read_settings<D>(driver: &mut D, shared: &Shared) -> Result<(), Error>
where
    D: Future<Output = Result<(), Error>> + Unpin,
{
    poll_fn(|cx| match Pin::new(&mut *driver).poll(cx) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        // Closed in good order, but closed.
        Poll::Ready(Ok(())) => {
            let text = "the server closed the connection";
            let error = io::Error::new(ErrorKind::UnexpectedEof, text);
            Poll::Ready(Err(error.into()))
        }
        Poll::Pending if shared.settings_seen() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn drive(
    driver: impl Future<Output = Result<(), Error>>,
    unresponsive: impl Future<Output = Arc<str>>,
    shared: Arc<Shared>,
) {
    let task = Task { shared };
    let reason: Arc<str> = tokio::select! {
        ended = driver => match ended {
            Ok(()) => "closed in good order".into(),
            Err(error) => error.to_string().into(),
        },
        // This drops the driver, and with it the connection.
        reason = unresponsive => reason,
    };
    debug!(address = %task.shared.address, %reason, "disconnected");
    task.shared.handle_closed(reason);
}

/// Reports the end of the connection even if its task is dropped or panics.
struct Task {
    shared: Arc<Shared>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.shared.handle_closed("the connection task was stopped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_span_of_time_is_too_long() {
        assert!(after(Duration::MAX) > after(Duration::from_secs(1)));
    }
}
