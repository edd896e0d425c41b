//! Small servers on loopback, and bodies to send to them, which the tests share.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use crowfly::transport::{Connection, Profile, ResponseBody};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream, server};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Collected, Full};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tonic::Status;

use crate::BACKEND;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The profile of connections without TLS.
pub(crate) fn plaintext() -> Profile {
    Profile::plaintext().with_backend(BACKEND)
}

pub(crate) async fn connect(address: SocketAddr) -> Connection {
    Connection::connect(address, &plaintext(), TIMEOUT)
        .await
        .unwrap()
}

pub(crate) type ServerConnection = server::Connection<TcpStream, Bytes>;

/// A connection and the server's end of it, which nobody polls yet.
pub(crate) async fn pair(settings: &server::Builder) -> (Connection, ServerConnection) {
    let (listener, address) = listen().await;
    let accept = async {
        let (tcp, _) = listener.accept().await.unwrap();
        settings.handshake(tcp).await.unwrap()
    };
    tokio::join!(connect(address), accept)
}

/// A connection to a server that runs `handler` on every call.
pub(crate) async fn serve<F, R>(handler: F) -> Connection
where
    F: Fn(Call) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (connection, server) = pair(&server::Builder::new()).await;
    tokio::spawn(run(server, handler));
    connection
}

/// Accepts calls until the connection ends.
pub(crate) async fn run<IO, F, R>(mut server: server::Connection<IO, Bytes>, handler: F)
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Call) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    while let Some(Ok((request, respond))) = server.accept().await {
        tokio::spawn(handler(Call { request, respond }));
    }
}

/// The server's view of one call.
pub(crate) struct Call {
    pub(crate) request: Request<RecvStream>,
    pub(crate) respond: SendResponse<Bytes>,
}

impl Call {
    pub(crate) fn start_response(&mut self) -> SendStream<Bytes> {
        self.respond
            .send_response(Response::new(()), false)
            .unwrap()
    }
}

/// Sends the request body back, frame by frame, then its trailers or `grpc-status: 0`.
pub(crate) async fn echo(mut call: Call) {
    let mut out = call.start_response();
    let body = call.request.body_mut();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        send_all(&mut out, data).await;
    }
    let trailers = body.trailers().await.unwrap();
    out.send_trailers(trailers.unwrap_or_else(ok_trailers))
        .unwrap();
}

pub(crate) async fn send_all(out: &mut SendStream<Bytes>, mut data: Bytes) {
    while !data.is_empty() {
        out.reserve_capacity(data.len());
        let granted = poll_fn(|cx| out.poll_capacity(cx)).await.unwrap().unwrap();
        out.send_data(data.split_to(granted.min(data.len())), false)
            .unwrap();
    }
}

pub(crate) fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    trailers
}

pub(crate) fn request<B>(body: B) -> Request<B> {
    let builder = Request::post("http://payments/grpc.testing.TestService/UnaryCall");
    builder.header("te", "trailers").body(body).unwrap()
}

pub(crate) fn unary(data: impl Into<Bytes>) -> Request<Full<Bytes>> {
    request(Full::new(data.into()))
}

pub(crate) async fn collect(response: Response<ResponseBody>) -> Collected<Bytes> {
    response.into_body().collect().await.unwrap()
}

pub(crate) fn channel_body() -> (mpsc::UnboundedSender<FrameResult>, ChannelBody) {
    let (sender, frames) = mpsc::unbounded_channel();
    (sender, ChannelBody { frames })
}

pub(crate) type FrameResult = Result<Frame<Bytes>, Status>;

/// A streaming request body: what is sent into the channel, until its sender is dropped.
pub(crate) struct ChannelBody {
    frames: mpsc::UnboundedReceiver<FrameResult>,
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.frames.poll_recv(cx)
    }
}

pub(crate) fn data(bytes: impl Into<Bytes>) -> FrameResult {
    Ok(Frame::data(bytes.into()))
}

/// A server without a protocol: it writes what it is told to.
pub(crate) struct RawServer {
    tcp: TcpStream,
}

impl RawServer {
    pub(crate) const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    pub(crate) const HEADERS: u8 = 1;

    /// Accepts, and reads the client's preface.
    pub(crate) async fn accept(listener: &TcpListener) -> Self {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut preface = [0; 24];
        tcp.read_exact(&mut preface).await.unwrap();
        assert!(preface.starts_with(b"PRI * HTTP/2.0"));
        Self { tcp }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.tcp.write_all(bytes).await.unwrap();
    }

    /// Reads frames up to and including one of this type.
    pub(crate) async fn read_until(&mut self, kind: u8) {
        loop {
            let mut header = [0; 9];
            self.tcp.read_exact(&mut header).await.unwrap();
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            self.tcp.read_exact(&mut payload).await.unwrap();
            if header[3] == kind {
                return;
            }
        }
    }
}
