//! One connection to a member of an etcd, with its socket, its token and its calls.
//!
//! A new connection has a new session, because the token of an older one may have expired.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crowfly_tls::{FileSource, ServerCheck};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::api::auth_client::AuthClient;
use super::api::kv_client::KvClient;
use super::api::watch_client::WatchClient;
use super::api::{AuthenticateRequest, RangeRequest, RangeResponse, WatchRequest, WatchResponse};
use super::follower::RangeFailure;
use super::options::{Credentials, EtcdOptions, Member, Password};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// etcd refuses pings that come faster than every 5 s.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection, with the settings that its calls need.
#[derive(Clone, Debug)]
pub(super) struct Session {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    max_message: usize,
}

impl Session {
    /// Connects, and logs in if there is a user. The token is new for each connection, because the one
    /// of another connection may have expired.
    pub(super) async fn open(
        options: Arc<EtcdOptions>,
        member: Member,
        files: Option<Arc<FileSource>>,
    ) -> Result<Self, String> {
        let named = |reason: String| format!("{}: {reason}", member.authority);
        let opening = Self::open_in_time(&options, &member, files);
        match timeout(CONNECT_TIMEOUT, opening).await {
            Ok(opened) => opened.map_err(named),
            Err(_) => Err(named(format!("no connection within {CONNECT_TIMEOUT:?}"))),
        }
    }

    async fn open_in_time(
        options: &EtcdOptions,
        member: &Member,
        files: Option<Arc<FileSource>>,
    ) -> Result<Self, String> {
        let connector = Connector {
            authority: member.authority.as_str().into(),
            server_name: options.server_name.as_deref().map(Arc::from),
            files,
        };
        // The connector makes TLS, so the URI has none.
        let endpoint = Endpoint::from_shared(format!("http://{}", member.authority))
            .map_err(|error| error.to_string())?
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .http2_adaptive_window(true);
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| innermost(&error))?;
        let token = match &options.credentials {
            Some(credentials) => Some(log_in(channel.clone(), credentials).await?),
            None => None,
        };
        Ok(Self {
            channel,
            token,
            max_message: options.limits.message,
        })
    }

    /// One page of keys.
    pub(super) async fn range(self, request: RangeRequest) -> Result<RangeResponse, RangeFailure> {
        let mut client =
            KvClient::new(self.channel.clone()).max_decoding_message_size(self.max_message);
        let answer = timeout(RANGE_TIMEOUT, client.range(self.request(request))).await;
        match answer {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(failure(&status)),
            Err(_) => {
                let reason = format!("no answer to a listing within {RANGE_TIMEOUT:?}");
                Err(RangeFailure::Lost(reason.into()))
            }
        }
    }

    /// Opens the stream of watches. It answers once the first request is sent.
    pub(super) async fn watch(
        self,
        requests: mpsc::UnboundedReceiver<WatchRequest>,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let mut client =
            WatchClient::new(self.channel.clone()).max_decoding_message_size(self.max_message);
        let mut request = self.request(UnboundedReceiverStream::new(requests));
        // A member that is cut off from the others then ends its watches, instead of being silent.
        request
            .metadata_mut()
            .insert("hasleader", MetadataValue::from_static("true"));
        let responses = client.watch(request).await?;
        Ok(responses.into_inner())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

async fn log_in(
    channel: Channel,
    credentials: &Credentials,
) -> Result<MetadataValue<Ascii>, String> {
    let password = match &credentials.password {
        Password::Given(password) => password.to_string(),
        Password::File(path) => {
            let read = tokio::task::spawn_blocking({
                let path = path.clone();
                move || std::fs::read_to_string(path)
            });
            let read = read
                .await
                .unwrap_or_else(|error| Err(io::Error::other(error)));
            let text = read.map_err(|error| format!("{}: {error}", path.display()))?;
            text.strip_suffix('\n').unwrap_or(&text).to_owned()
        }
    };
    let request = AuthenticateRequest {
        name: credentials.user.clone(),
        password,
    };
    let answer = AuthClient::new(channel).authenticate(request).await;
    let name = &credentials.user;
    let answer = answer.map_err(|status| format!("login of {name:?}: {}", describe(&status)))?;
    let mut token: MetadataValue<Ascii> = answer
        .into_inner()
        .token
        .parse()
        .map_err(|_| format!("login of {name:?}: the token is not ASCII"))?;
    token.set_sensitive(true);
    Ok(token)
}

/// The consequence of a refused page. etcd has one code for several reasons, so its words count.
fn failure(status: &Status) -> RangeFailure {
    let reason = describe(status).into();
    match status.code() {
        Code::OutOfRange if status.message().contains("mvcc") => RangeFailure::Compacted,
        Code::OutOfRange => RangeFailure::TooLarge,
        // The token is older than a change of users: a new one will do.
        Code::InvalidArgument if status.message().contains("auth: revision") => {
            RangeFailure::Lost(reason)
        }
        Code::InvalidArgument | Code::PermissionDenied => RangeFailure::Refused(reason),
        _ => RangeFailure::Lost(reason),
    }
}

pub(super) fn describe(status: &Status) -> String {
    match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    }
}

/// tonic's own error says "transport error" alone; the reason is at the end of its chain.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Makes the connections of tonic, because its own TLS cannot take certificates that change on disk.
#[derive(Clone, Debug)]
struct Connector {
    authority: Arc<str>,
    server_name: Option<Arc<str>>,
    /// The files of certificates; none without TLS.
    files: Option<Arc<FileSource>>,
}

/// A socket of any kind.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl Connector {
    async fn connect(self) -> io::Result<TokioIo<Box<dyn Socket>>> {
        let socket = TcpStream::connect(&*self.authority).await?;
        socket.set_nodelay(true)?;
        let Some(files) = self.files else {
            return Ok(TokioIo::new(Box::new(socket)));
        };
        let material = files.current().await.map_err(io::Error::other)?;
        let config = material.client_config(&ServerCheck::HostName);
        let config = config.map_err(io::Error::other)?;
        let name = self.server_name.as_deref().unwrap_or(&self.authority);
        let name = crowfly_tls::server_name(name).map_err(io::Error::other)?;
        let stream = crowfly_tls::connect(Arc::new(config), name, socket).await;
        let stream = stream.map_err(|error| io::Error::other(format!("TLS handshake: {error}")))?;
        Ok(TokioIo::new(Box::new(stream)))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}
