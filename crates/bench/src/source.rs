//! A server that costs little: it sends bytes that were made before, or discards the bytes of
//! requests.
//!
//! The server is a process of its own on h2, so that a sample measures the client and not a
//! server's codec.

use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use crowfly_cli::testing::{Payload, StreamingOutputCallResponse};
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};

/// The payload of each message.
pub(crate) const PAYLOAD: usize = 64 * 1024;
/// The window for requests, which is so large that it does not slow down a client.
const WINDOW: u32 = 16 * 1024 * 1024;

/// Serves until the process ends; prints where.
pub(crate) async fn serve() -> std::io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    println!("listening on {}", listener.local_addr()?);
    // The process ends when its parent does, because the parent holds the other end of standard
    // input.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0)
    });
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        tokio::spawn(connection(tcp));
    }
}

async fn connection(tcp: TcpStream) {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let Ok(mut connection) = builder.handshake(tcp).await else {
        return;
    };
    let message = message();
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond, message.clone()));
    }
}

/// Answers until the client cancels the call, because a call that ends by itself would end the
/// sample.
async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    message: Bytes,
) -> Option<()> {
    let mut response = Response::new(());
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", grpc);
    let mut stream = respond.send_response(response, false).ok()?;
    match request.uri().path() {
        "/grpc.testing.TestService/StreamingOutputCall" => send(&mut stream, &message).await,
        "/grpc.testing.TestService/FullDuplexCall" => discard(request.into_body()).await?,
        _ => stream.send_data(message.slice(..0), false).ok()?,
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers).ok()
}

/// Sends the message again and again, as fast as the client lets it.
async fn send(stream: &mut SendStream<Bytes>, message: &Bytes) {
    loop {
        let mut rest = message.clone();
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            let Some(Ok(room)) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
                return;
            };
            let part = rest.split_to(room.min(rest.len()));
            if stream.send_data(part, false).is_err() {
                return;
            }
        }
    }
}

async fn discard(mut body: RecvStream) -> Option<()> {
    while let Some(data) = body.data().await {
        let len = data.ok()?.len();
        body.flow_control().release_capacity(len).ok()?;
    }
    Some(())
}

/// A response as gRPC frames it.
fn message() -> Bytes {
    let payload = Payload {
        body: vec![7; PAYLOAD].into(),
        ..Payload::default()
    };
    let response = StreamingOutputCallResponse {
        payload: Some(payload),
    };
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(response.encoded_len() as u32);
    framed.put_slice(&response.encode_to_vec());
    framed.freeze()
}
