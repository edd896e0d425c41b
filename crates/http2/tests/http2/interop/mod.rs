//! Tests against h2's server, because it shares no code with us and so no misreading of the RFC.

mod calls;
mod cancel;
mod ends;
mod large;

use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use crowfly_http2::{
    Client, Config, ConnectionEvent, ConnectionTask, Error, HeadFuture, ReceiveStream, SendStream,
    StreamError,
};
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::raw::post;

/// A client, and what a test can do to its server.
struct Peer {
    client: Client,
    server: UnboundedSender<Command>,
    connection: JoinHandle<Result<(), Error>>,
    events: Arc<Mutex<Vec<ConnectionEvent>>>,
}

enum Command {
    Abrupt(h2::Reason),
    Graceful,
    /// A new initial window.
    Window(u32),
}

impl Peer {
    /// With a server that serves each call with this.
    fn new<F>(server: &Builder, serve: fn(Request<RecvStream>, SendResponse<Bytes>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::with(server, Config::default(), serve)
    }

    fn with<F>(
        server: &Builder,
        config: Config,
        serve: fn(Request<RecvStream>, SendResponse<Bytes>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (near, far) = tokio::io::duplex(10_000);
        let (commands, commanded) = unbounded_channel();
        let server = server.clone();
        tokio::spawn(async move {
            let handshake = server.handshake(far).await;
            run(handshake.unwrap(), commanded, serve).await;
        });
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        let observe = move |event| heard.lock().unwrap().push(event);
        let (client, connection) = ConnectionTask::new(near, config, observe);
        Self {
            client,
            server: commands,
            connection: tokio::spawn(connection),
            events,
        }
    }

    /// After a first call: the client knows the server's settings by then.
    async fn settled(self) -> Self {
        answer(self.get()).await.unwrap();
        self
    }

    fn open(&self) -> (HeadFuture, SendStream) {
        self.client.open(&post(), false).unwrap()
    }

    fn get(&self) -> HeadFuture {
        self.client.open(&post(), true).unwrap().0
    }

    fn command(&self, command: Command) {
        self.server.send(command).ok().unwrap();
    }
}

async fn run<F>(
    mut server: h2::server::Connection<tokio::io::DuplexStream, Bytes>,
    mut commands: UnboundedReceiver<Command>,
    serve: fn(Request<RecvStream>, SendResponse<Bytes>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        tokio::select! {
            accepted = server.accept() => match accepted {
                Some(Ok((request, respond))) => drop(tokio::spawn(serve(request, respond))),
                _ => return,
            },
            Some(command) = commands.recv() => match command {
                Command::Abrupt(reason) => server.abrupt_shutdown(reason),
                Command::Graceful => server.graceful_shutdown(),
                // Not while the last change is not acknowledged.
                Command::Window(size) => drop(server.set_initial_window_size(size)),
            },
        }
    }
}

/// Sends back what it gets, as it gets it: headers, DATA and trailers.
async fn echo(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (head, mut body) = request.into_parts();
    let mut response = Response::new(());
    *response.headers_mut() = head.headers;
    let mut stream = respond.send_response(response, false).unwrap();
    while let Some(Ok(mut data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        while !data.is_empty() {
            stream.reserve_capacity(data.len());
            let Some(Ok(room)) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
                return;
            };
            let part = data.split_to(room.min(data.len()));
            let _ = stream.send_data(part, false);
        }
    }
    if let Ok(trailers) = body.trailers().await {
        let _ = stream.send_trailers(trailers.unwrap_or_default());
    }
}

/// Sends all of a body, waiting for room before each piece.
pub(crate) async fn send(
    request: &mut SendStream,
    body: &Bytes,
    piece: usize,
) -> Result<(), StreamError> {
    for at in (0..body.len()).step_by(piece) {
        poll_fn(|cx| request.poll_room(cx)).await?;
        let end = (at + piece).min(body.len());
        request.send_data(body.slice(at..end), false)?;
    }
    request.send_data(Bytes::new(), true)
}

/// All DATA of a response, and its trailers.
async fn read(body: &mut ReceiveStream) -> Result<(Vec<u8>, HeaderMap), StreamError> {
    let mut all = Vec::new();
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        all.extend_from_slice(&data?);
    }
    let trailers = poll_fn(|cx| body.poll_trailers(cx)).await?;
    Ok((all, trailers.unwrap_or_default()))
}

pub(crate) async fn answer(response: HeadFuture) -> Result<(Vec<u8>, HeaderMap), StreamError> {
    read(response.await?.body_mut()).await
}

/// Bytes that tell where they belong.
fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at % 251) as u8).collect()
}
