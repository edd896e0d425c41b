//! Connecting, and the end of a connection.
//!
//! A connection is READY only once the server's SETTINGS were read. The end of a connection has two steps, draining and
//! closed, because a balancer must stop picking it before its streams have ended.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::connection_state::ConnectionState;
use super::dial::Dialled;
use super::error::{ConnectError, ConnectPhase};
use super::http2::{Backend, Client, Config, Error, GoAway, Socket, Writes};
use super::keepalive::{self, Heard, Keepalive};
use super::profile::Profile;
use super::sender::Sender;

/// The hint for a plaintext connection to a server that does not answer in HTTP/2. A server that wants TLS
/// answers with an alert, or closes the connection.
const WANTS_TLS: &str = " (we speak plaintext: does the server want TLS?)";

/// The hints for a TLS connection that ends before it speaks HTTP/2. In TLS 1.3 a server verifies the client's
/// certificate after the client's handshake has ended, and gRPC C-core sends no alert then.
const REFUSES_CERTIFICATE: &str =
    " (after the TLS handshake: does the server refuse our client certificate?)";
const WANTS_CERTIFICATE: &str =
    " (after the TLS handshake: does the server require a client certificate? we have none for it)";

/// One HTTP/2 connection that is ready for calls.
///
/// A task of its own drives the connection. The task ends when the server closes the connection. The task also ends
/// when this handle, all [`Sender`]s and all streams are gone, so releasing a connection never breaks a call.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    state: Arc<ConnectionState>,
    draining: bool,
}

impl Connection {
    /// Connects to `address` and returns once the server's SETTINGS have been read.
    ///
    /// The function waits for SETTINGS, because the kernel of a stopped process still completes the TCP handshake.
    /// `connect_timeout` covers TCP, TLS and SETTINGS together. Dropping the future ends the attempt.
    ///
    /// Must be called within a tokio runtime.
    pub async fn connect(
        address: SocketAddr,
        profile: &Profile,
        connect_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let mut connecting = Connecting {
            address,
            deadline: after(connect_timeout),
            connect_timeout,
            keepalive: profile.keepalive(),
            config: profile.http2(),
            backend: profile.backend(),
            is_secure: profile.tls().is_some(),
            hint: WANTS_TLS,
        };
        // The files come first, because without them a connection would be of no use.
        let handshake = match profile.tls() {
            None => None,
            Some(tls) => {
                let handshake = tls.prepare(address.ip());
                let phase = ConnectPhase::Certificates;
                let handshake = connecting.phase(phase, handshake).await?;
                connecting.hint = match handshake.presents_certificate() {
                    true => REFUSES_CERTIFICATE,
                    false => WANTS_CERTIFICATE,
                };
                Some(handshake)
            }
        };
        let dialled = connecting
            .phase(ConnectPhase::Connect, profile.dial(address))
            .await?;
        match handshake {
            None => {
                let socket = Socket {
                    writes: dialled.writes(),
                    io: dialled,
                    probe: Dialled::is_hung_up,
                };
                connecting.http2(socket).await
            }
            Some(handshake) => {
                let handshake = handshake.run(dialled);
                let stream = connecting.phase(ConnectPhase::Tls, handshake).await?;
                let socket = Socket {
                    io: stream,
                    probe: |stream| stream.get_ref().0.is_hung_up(),
                    writes: Writes::Layered,
                };
                connecting.http2(socket).await
            }
        }
    }

    /// The sender of calls; cheap to clone.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// True if the server complained of too many PINGs (gRFC A8).
    pub fn has_too_many_pings(&self) -> bool {
        self.state.too_many_pings()
    }

    /// True if a call was sent on this connection.
    pub fn has_carried_calls(&self) -> bool {
        self.state.has_carried_calls()
    }

    /// Waits for the next step towards the end: at most one [`Closing::Draining`], then
    /// [`Closing::Closed`] each time. Dropping the future loses nothing.
    pub async fn closing(&mut self) -> Closing {
        loop {
            if let Some(step) = self.next_step() {
                return step;
            }
            self.state.closing_changed().await;
        }
    }

    /// The step towards the end that is to be told.
    fn next_step(&mut self) -> Option<Closing> {
        let step = self.state.closing().clone()?;
        let is_draining = matches!(step, Closing::Draining(_));
        let was_draining = std::mem::replace(&mut self.draining, is_draining);
        (!(is_draining && was_draining)).then_some(step)
    }
}

/// The steps towards the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The connection is over, and open streams have failed.
    Closed(Arc<str>),
    /// The connection takes no new streams, and open ones go on to their end. The value is `None` when the connection
    /// has only used up its stream ids.
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

/// An attempt to connect. The steps of the attempt share a deadline.
struct Connecting {
    address: SocketAddr,
    deadline: Instant,
    connect_timeout: Duration,
    keepalive: Option<Keepalive>,
    config: Config,
    backend: Backend,
    /// True if HTTP/2 is spoken over TLS.
    is_secure: bool,
    /// The likely mistake if the server does not speak HTTP/2.
    hint: &'static str,
}

impl Connecting {
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
        let mut state = ConnectionState::new(self.address, Handle::current());
        if let Some((_, heard)) = &keepalive {
            state = state.listening(Arc::clone(heard));
        }
        let state = Arc::new(state);
        let listener = state.clone();
        let observe = move |event| listener.handle_event(event);
        let ready = async {
            let connected = Client::connect(self.backend, socket, self.config, observe);
            let (client, mut driver) = connected.await?;
            read_settings(&mut driver, &state).await?;
            Ok::<_, Error>((client, driver))
        };
        let ready = async {
            let outcome = ready.await;
            outcome.map_err(|error| self.not_http2(&error))
        };
        let (client, driver) = self.phase(ConnectPhase::Settings, ready).await?;
        debug!(address = %self.address, "connected");

        let watched = state.clone();
        let keepalive = keepalive.map(|keepalive| (keepalive, client.pings()));
        let unresponsive = async move {
            match keepalive {
                Some(((settings, heard), pings)) => {
                    keepalive::watch(pings, heard, settings, watched).await
                }
                None => pending().await,
            }
        };
        tokio::spawn(drive(driver, unresponsive, state.clone()));
        Ok(Connection {
            sender: Sender::new(client, Arc::clone(&state), self.scheme()),
            state,
            draining: false,
        })
    }
}

impl Connecting {
    /// The `:scheme` of requests.
    fn scheme(&self) -> Scheme {
        match self.is_secure {
            true => Scheme::HTTPS,
            false => Scheme::HTTP,
        }
    }

    /// The reason why there is no HTTP/2, with a hint where the likely mistake is one of TLS.
    fn not_http2(&self, error: &Error) -> String {
        match error {
            Error::Io(io) if self.is_secure => {
                let reason = crowfly_tls::reason(io);
                let is_told = crowfly_tls::is_told_by_server(io);
                let hint = if is_told { "" } else { self.hint };
                format!("{reason}{hint}")
            }
            error if self.is_secure => error.to_string(),
            error => format!("{error}{}", self.hint),
        }
    }
}

/// The moment that is a span of time from now. A span that is too long for the clock gives a moment far
/// away.
fn after(span: Duration) -> Instant {
    let far_away = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(span).unwrap_or(now + far_away)
}

/// Drives the connection in place until the server's SETTINGS have come.
///
/// The driver is not spawned before that, so that an attempt that times out or is dropped leaves nothing
/// behind.
async fn read_settings<D>(driver: &mut D, state: &ConnectionState) -> Result<(), Error>
where
    D: Future<Output = Result<(), Error>> + Unpin,
{
    poll_fn(|cx| match Pin::new(&mut *driver).poll(cx) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        // The server closed without an error, but there is no connection.
        Poll::Ready(Ok(())) => {
            let text = "the server closed the connection";
            let error = io::Error::new(ErrorKind::UnexpectedEof, text);
            Poll::Ready(Err(error.into()))
        }
        Poll::Pending if state.settings_seen() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn drive(
    driver: impl Future<Output = Result<(), Error>>,
    unresponsive: impl Future<Output = Arc<str>>,
    state: Arc<ConnectionState>,
) {
    let task = Task { state };
    let reason: Arc<str> = tokio::select! {
        ended = driver => match ended {
            Ok(()) => "closed in good order".into(),
            Err(error) => error.to_string().into(),
        },
        // The driver is dropped here, and with it the connection.
        reason = unresponsive => reason,
    };
    debug!(address = %task.state.address, %reason, "disconnected");
    task.state.handle_closed(reason);
}

/// Reports the end of the connection even if its task is dropped or panics.
struct Task {
    state: Arc<ConnectionState>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.state.handle_closed("the connection task was stopped");
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
