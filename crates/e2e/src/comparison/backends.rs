//! Backends in this process that answer any path and do as the [`Script`] of a call says.
//!
//! The backends record the attempts that they see, because a client does not tell how often it
//! tried.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use crowfly_testkit::Reserved;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::{Code, Status};

use super::Script;

/// Servers, each of which answers with its own name. Dropping them stops them.
pub struct Backends {
    /// The name and the address of each.
    pub addresses: Vec<(String, SocketAddr)>,
    records: Records,
    failing: Failing,
    servers: HashMap<String, Server>,
}

/// A port and the server that listens there, unless it is stopped.
struct Server {
    port: Reserved,
    /// The task that serves.
    running: JoinSet<()>,
}

/// An attempt of a call, as a backend saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The name of the backend.
    pub backend: String,
    /// The value of `grpc-previous-rpc-attempts`.
    pub previous: Option<String>,
    /// The value of `grpc-timeout`.
    pub timeout: Option<String>,
}

impl Attempt {
    /// The time that the client said is left; `None` if it said nothing that can be read.
    pub fn time_left(&self) -> Option<Duration> {
        let text = self.timeout.as_ref()?;
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let number: u64 = number.parse().ok()?;
        Some(match unit {
            "H" => Duration::from_secs(number * 3600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    }
}

/// The attempts of each call that has a name, in the order in which they came.
type Records = Arc<Mutex<HashMap<String, Vec<Attempt>>>>;

/// The names of the backends that fail every call.
type Failing = Arc<Mutex<HashSet<String>>>;

impl Backends {
    /// Starts one backend of each name, on ports that the kernel chooses.
    pub fn start(names: &[&str]) -> Self {
        let mut backends = Self {
            addresses: Vec::new(),
            records: Records::default(),
            failing: Failing::default(),
            servers: HashMap::new(),
        };
        for name in names {
            let (port, running) = (Reserved::new(), JoinSet::new());
            let server = Server { port, running };
            let address = server.port.address;
            backends.addresses.push(((*name).to_owned(), address));
            backends.servers.insert((*name).to_owned(), server);
            backends.restart(name);
        }
        backends
    }

    /// The address of the backend of this name.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn address(&self, name: &str) -> SocketAddr {
        self.servers[name].port.address
    }

    /// True if the backend of this name serves.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn is_running(&self, name: &str) -> bool {
        !self.servers[name].running.is_empty()
    }

    /// Ends the backend of this name and its connections. New ones are refused.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub async fn stop(&mut self, name: &str) {
        let server = self.servers.get_mut(name).expect("a backend");
        server.running.shutdown().await;
    }

    /// Lets a backend that was stopped serve again.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn restart(&mut self, name: &str) {
        let backend = Backend {
            name: name.to_owned(),
            records: Arc::clone(&self.records),
            failing: Arc::clone(&self.failing),
        };
        let server = self.servers.get_mut(name).expect("a backend");
        let listener = server.port.listen();
        server.running.spawn(backend.serve(listener));
    }

    /// Makes these backends fail every call with UNAVAILABLE, against its script, and the others
    /// not.
    ///
    /// # Panics
    ///
    /// If a backend panicked.
    pub fn fail(&self, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned());
        *self.failing.lock().expect("no holder panics") = names.collect();
    }

    /// Takes the records of the call with this name.
    pub(super) fn take_attempts(&self, call: &str) -> Vec<Attempt> {
        let mut records = self.records.lock().expect("no holder panics");
        records.remove(call).unwrap_or_default()
    }
}

#[derive(Clone)]
struct Backend {
    name: String,
    records: Records,
    failing: Failing,
}

impl Backend {
    /// Serves each connection by hyper alone, because tonic's server ends calls at their `grpc-timeout` itself.
    async fn serve(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let (socket, _) = listener.accept().await.expect("a connection");
            socket.set_nodelay(true).expect("a socket with options");
            let backend = self.clone();
            let answers = service_fn(move |request: Request<Incoming>| {
                let backend = backend.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let message = body.collect().await?.to_bytes();
                    Ok::<_, hyper::Error>(backend.answer(&head.headers, &message).await)
                }
            });
            let server = http2::Builder::new(TokioExecutor::new());
            let connection = server.serve_connection(TokioIo::new(socket), answers);
            // A connection that ends is the client's affair.
            connections.spawn(async { drop(connection.await) });
        }
    }

    async fn answer(self, headers: &HeaderMap, message: &Bytes) -> Response<Body> {
        // The script follows the prefix of the message.
        let script = Script::from_message(message.get(PREFIX..).unwrap_or_default());
        let earlier = self.record(&script.name, headers);
        if self.is_failing() {
            return failure(Code::Unavailable, None);
        }
        if script.hang {
            std::future::pending::<()>().await;
        }
        let code = script.codes.get(earlier).or_else(|| script.codes.last());
        match code.copied().unwrap_or(Code::Ok) {
            Code::Ok => success(&self.name),
            code => failure(code, script.pushback.as_deref()),
        }
    }

    fn is_failing(&self) -> bool {
        let failing = self.failing.lock().expect("no holder panics");
        failing.contains(&self.name)
    }

    /// Records an attempt, and returns the number of those before it.
    fn record(&self, call: &str, headers: &HeaderMap) -> usize {
        if call.is_empty() {
            return 0;
        }
        let text = |name| {
            let value: Option<&HeaderValue> = headers.get(name);
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let attempt = Attempt {
            backend: self.name.clone(),
            previous: text("grpc-previous-rpc-attempts"),
            timeout: text("grpc-timeout"),
        };
        let mut records = self.records.lock().expect("no holder panics");
        let attempts = records.entry(call.to_owned()).or_default();
        attempts.push(attempt);
        attempts.len() - 1
    }
}

/// The bytes of a message's flag and length.
const PREFIX: usize = 5;

/// A response with the name of the backend as its message.
fn success(name: &str) -> Response<Body> {
    let mut message = BytesMut::with_capacity(PREFIX + name.len());
    message.put_u8(0);
    message.put_u32(u32::try_from(name.len()).expect("a short name"));
    message.put_slice(name.as_bytes());
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(message.freeze()).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    let content_type = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", content_type);
    response
}

/// A response of trailers only.
fn failure(code: Code, pushback: Option<&str>) -> Response<Body> {
    let mut status = Status::new(code, "as the script says");
    if let Some(pushback) = pushback {
        let value = pushback.parse().expect("a value of metadata");
        status
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", value);
    }
    status.into_http()
}
