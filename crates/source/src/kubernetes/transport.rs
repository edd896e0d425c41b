//! Requests to the API server.
//!
//! The client of `kube` waits without a limit, retries without a log line, and keeps a token for a minute
//! after it was rotated. So it is given this service instead of its own.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::connect::Connector;
use super::limits::Limited;
use super::server::TokenFile;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The time within which a server must begin to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest pause that a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Events of the transport that its watch must know.
#[derive(Debug)]
pub(super) struct Signals {
    /// The number of watches that the server has begun to answer.
    opened: watch::Sender<u64>,
    /// The pause that the server asked for last.
    pause: Mutex<Option<Duration>>,
    /// The time before which no watch is begun.
    next_watch: Mutex<Option<Instant>>,
    /// The least time between the beginnings of two watches, because a server may end each of them at once.
    between_watches: Duration,
}

impl Signals {
    pub(super) fn new(between_watches: Duration) -> Arc<Self> {
        Arc::new(Self {
            opened: watch::Sender::new(0),
            pause: Mutex::new(None),
            next_watch: Mutex::new(None),
            between_watches,
        })
    }

    pub(super) fn opened(&self) -> watch::Receiver<u64> {
        self.opened.subscribe()
    }

    /// Takes the pause that the server asked for.
    pub(super) fn take_pause(&self) -> Option<Duration> {
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.take()
    }

    fn note(&self, answer: &Response<Incoming>, is_watch: bool) {
        if answer.status().is_success() {
            if is_watch {
                self.opened.send_modify(|opened| *opened += 1);
            }
            return;
        }
        let asks = matches!(
            answer.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let said = answer.headers().get(RETRY_AFTER).filter(|_| asks);
        let said = said.and_then(|said| said.to_str().ok()?.trim().parse().ok());
        let said = said.map(|seconds| Duration::from_secs(seconds).min(LONGEST_PAUSE));
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// The time at which a watch may begin. The next one may begin a while later.
    fn reserve(&self, now: Instant) -> Instant {
        let next = self.next_watch.lock();
        let mut next = next.unwrap_or_else(PoisonError::into_inner);
        let at = next.map_or(now, |next| next.max(now));
        *next = Some(at + self.between_watches);
        at
    }
}

/// Sends requests. It is a service for the client of `kube`.
#[derive(Clone)]
pub(super) struct Transport {
    pub(super) client: Client<Connector, Body>,
    /// The address of the server, without a slash at its end.
    pub(super) base: Arc<str>,
    pub(super) token: Option<Arc<TokenFile>>,
    pub(super) signals: Arc<Signals>,
}

impl Transport {
    async fn send(self, mut request: Request<Body>) -> Result<Response<Limited>, BoxError> {
        let path = request.uri().path_and_query();
        let path = path.map_or("/", |path| path.as_str());
        let is_watch = path.contains("watch=true");
        let uri: Uri = format!("{}{path}", self.base).parse()?;
        *request.uri_mut() = uri;
        if let Some(token) = self.token {
            let read = tokio::task::spawn_blocking(move || token.read());
            let mut value = HeaderValue::from_str(&format!("Bearer {}", read.await??))?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        if is_watch {
            sleep_until(self.signals.reserve(Instant::now())).await;
        }
        let answer = timeout(PATIENCE, self.client.request(request)).await;
        let answer = answer.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            format!("no answer within {seconds} s")
        })??;
        self.signals.note(&answer, is_watch);
        Ok(answer.map(|body| Limited::new(body, is_watch)))
    }
}

impl tower_service::Service<Request<Body>> for Transport {
    type Response = Response<Limited>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Limited>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that ends every watch at once would otherwise be asked as fast as it answers.
    #[tokio::test(start_paused = true)]
    async fn watches_have_time_between_them() {
        let second = Duration::from_secs(1);
        let signals = Signals::new(second);
        let now = Instant::now();
        assert_eq!(signals.reserve(now), now);
        assert_eq!(signals.reserve(now), now + second);
        assert_eq!(signals.reserve(now + 9 * second), now + 9 * second);
    }
}
