//! The fuzz target of the server half: a client that asks for anything at any time, because any
//! program may be a client.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_xds::{ClientNode, DeltaSubscription, Response, ServerHalf, Snapshot, Subscription};
use prost::Message;

use crate::builders::{Resources, cluster, endpoint, endpoints, listener};

/// The most responses that one step may cause. There are six resources of three types.
const MAX_RESPONSES: usize = 100;

/// A server against a client that sends anything at any time, while snapshots change.
///
/// The first byte chooses the protocol. Then each step is one byte for the event and one for its
/// argument. A request takes 16 times as many bytes as its argument says, or all that are left.
pub fn server(bytes: &[u8]) {
    server_state(bytes);
}

/// A server at the end of a script, with all that it holds.
#[derive(Debug)]
pub struct ServerState {
    /// The bytes that the server says it holds, with the node of the client, and the number of names in them.
    pub held: (usize, usize),
    _half: Box<dyn Any>,
}

/// Does the same as [`server`], and returns the state of the server. So its memory can be compared with what it says
/// that it holds.
pub fn server_state(bytes: &[u8]) -> Option<ServerState> {
    let (mode, steps) = bytes.split_first()?;
    Some(if mode & 1 == 0 {
        ServerState::of(run::<Subscription>(steps))
    } else {
        ServerState::of(run::<DeltaSubscription>(steps))
    })
}

impl ServerState {
    fn of(half: impl ServerHalf + 'static) -> Self {
        let held = half.held();
        let node = half.node().map_or(0, ClientNode::encoded_len);
        Self {
            held: (held.bytes + node, held.all_names),
            _half: Box::new(half),
        }
    }
}

/// The mark of a step after which the client does not read.
pub const UNREAD: u8 = 0x80;

/// The bytes of one script of [`server`], for a seed of the corpus. Each request is followed by another
/// snapshot and by time. Each step has these `marks`, and no response is made if one is [`UNREAD`].
pub fn server_seed(mode: u8, marks: u8, requests: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![mode];
    for (index, request) in requests.iter().enumerate() {
        super::push_body(&mut bytes, marks, request);
        let index = u8::try_from(index % 256).expect("a byte");
        bytes.extend([1 | marks, index, 2 | marks, 30]);
        if marks & UNREAD == 0 {
            bytes.extend([3 | marks, 0]);
        }
    }
    bytes
}

fn run<H: ServerHalf<Request: Message + Default>>(mut steps: &[u8]) -> H {
    let mut server = H::new(snapshot(0), Arc::default());
    let mut now = Instant::now();
    let mut asked = 0;
    while let [step, argument, after @ ..] = steps {
        steps = after;
        match step % 4 {
            0 => {
                let length = (usize::from(*argument) * 16).min(steps.len());
                let (body, after) = steps.split_at(length);
                steps = after;
                if let Ok(request) = H::Request::decode(body) {
                    asked += length;
                    server.handle_request(request);
                }
            }
            1 => server.handle_snapshot(snapshot(*argument)),
            2 => {
                now += Duration::from_millis(u64::from(*argument) * 200);
                server.handle_time(now);
            }
            _ => check(server.poll_response().as_ref()),
        }
        let held = server.held();
        assert!(held.names <= held.all_names && held.all_names <= asked);
        // A name may be longer in its canonical form.
        assert!(held.bytes <= 3 * asked, "{held:?} of {asked} bytes");
        // A client that does not read leaves responses unmade.
        if step & UNREAD == 0 {
            drain(&mut server);
        }
    }
    server
}

fn drain<H: ServerHalf>(server: &mut H) {
    for _ in 0..MAX_RESPONSES {
        let response = server.poll_response();
        check(response.as_ref());
        if response.is_none() {
            return;
        }
    }
    panic!("responses do not end");
}

/// A response has the length that it says.
fn check(response: Option<&Response>) {
    if let Some(response) = response {
        let mut bytes = Vec::new();
        response.encode(&mut bytes);
        assert_eq!(bytes.len(), response.encoded_len());
    }
}

/// A snapshot whose content depends on the bits of `choice`.
fn snapshot(choice: u8) -> Arc<Snapshot> {
    let has = |bit: u8| choice & (1 << bit) == 0;
    let mut resources = Resources::new();
    for (bit, name) in [(0, "a"), (1, "b")] {
        if has(bit) {
            resources = resources.with(cluster(name).eds(name));
        }
        if has(bit + 2) {
            let port = if has(6) { "10.0.0.1:80" } else { "10.0.0.1:81" };
            resources = resources.with(endpoints(name).locality("east", 1, [endpoint(port)]));
        }
        if has(bit + 4) {
            resources = resources.with(listener(name).rds(name));
        }
    }
    resources.snapshot()
}
