//! A DNS server over real sockets, whose answers a test sets, because public DNS gives no failures
//! on demand.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, Metadata, Query, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A limit for waits, longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A name server on a loopback port, over UDP, and over TCP for answers that do not fit into a
/// datagram.
///
/// A host that no answer was set for does not exist. Answers can be changed at any time.
#[derive(Debug)]
pub struct DnsServer {
    address: SocketAddr,
    zone: Arc<Zone>,
    /// The number of queries that [`next_query`](Self::next_query) has returned.
    told: usize,
    _tasks: JoinSet<()>,
}

/// The answer for a host, or for one type of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// The addresses that are of the type asked for; there may be none.
    Addresses {
        /// The addresses of both families.
        addresses: Vec<IpAddr>,
        /// The time that a cache may keep them, in seconds.
        ttl: u32,
    },
    /// NXDOMAIN.
    NoSuchHost,
    /// SERVFAIL.
    ServerFailure,
    /// The server sends no answer at all.
    Silence,
}

/// A query as it came. A client that waits for long sends it again with the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsQuery {
    /// The host, in lower case and without the final dot.
    pub host: String,
    /// `A` or `AAAA`.
    pub record_type: RecordType,
    /// The id, by which the client matches answers.
    pub id: u16,
    /// The time when the query came.
    pub at: Instant,
}

#[derive(Debug)]
struct Zone {
    answers: Mutex<BTreeMap<(String, RecordType), DnsAnswer>>,
    queries: watch::Sender<Vec<DnsQuery>>,
}

impl DnsAnswer {
    /// An answer with these addresses, which a cache may keep for a day.
    pub fn addresses<A: AsRef<str>>(addresses: &[A]) -> Self {
        let parse = |text: &A| text.as_ref().parse().expect("an IP address");
        Self::Addresses {
            addresses: addresses.iter().map(parse).collect(),
            ttl: 86400,
        }
    }
}

impl DnsServer {
    /// Starts to serve; when this returns, queries are answered.
    pub async fn start() -> Self {
        let (udp, tcp) = bind().await;
        let address = udp.local_addr().expect("it is bound");
        let zone = Arc::new(Zone {
            answers: Mutex::default(),
            queries: watch::Sender::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(udp, Arc::clone(&zone)));
        tasks.spawn(serve_tcp(tcp, Arc::clone(&zone)));
        Self {
            address,
            zone,
            told: 0,
            _tasks: tasks,
        }
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers queries about `host`, of both types, like this from now on.
    pub fn set(&self, host: &str, answer: DnsAnswer) {
        self.set_type(host, RecordType::A, answer.clone());
        self.set_type(host, RecordType::AAAA, answer);
    }

    /// Answers queries about `host` of one type like this from now on.
    pub fn set_type(&self, host: &str, record_type: RecordType, answer: DnsAnswer) {
        let mut answers = self.zone.answers.lock().expect("no test panicked here");
        answers.insert((host.to_owned(), record_type), answer);
    }

    /// Every query so far.
    pub fn queries(&self) -> Vec<DnsQuery> {
        self.zone.queries.borrow().clone()
    }

    /// Waits for the first query that no earlier call returned.
    pub async fn next_query(&mut self) -> DnsQuery {
        let mut queries = self.zone.queries.subscribe();
        let more = queries.wait_for(|queries| queries.len() > self.told);
        let more = timeout(PATIENCE, more).await.expect("no query came");
        let query = more.expect("the server is here")[self.told].clone();
        self.told += 1;
        query
    }
}

impl Zone {
    /// The answer to a message; `None` if the server sends none.
    fn answer(&self, bytes: &[u8]) -> Option<Message> {
        let request = Message::from_vec(bytes).expect("a DNS message");
        let [query] = &*request.queries else {
            panic!("expected one query, got {:?}", request.queries);
        };
        let host = host(query);
        let record_type = query.query_type();
        self.queries.send_modify(|queries| {
            queries.push(DnsQuery {
                host: host.clone(),
                record_type,
                id: request.metadata.id,
                at: Instant::now(),
            });
        });

        let mut response = Message::query();
        response.metadata = Metadata::response_from_request(&request.metadata);
        response.metadata.recursion_available = true;
        response.add_query(query.clone());
        let answers = self.answers.lock().expect("no test panicked here");
        match answers.get(&(host, record_type)) {
            Some(DnsAnswer::Addresses { addresses, ttl }) => {
                let data = addresses.iter().copied().map(RData::from);
                let data = data.filter(|data| data.record_type() == record_type);
                let record = |data| Record::from_rdata(query.name().clone(), *ttl, data);
                response.add_answers(data.map(record));
            }
            Some(DnsAnswer::ServerFailure) => {
                response.metadata.response_code = ResponseCode::ServFail;
            }
            Some(DnsAnswer::Silence) => return None,
            Some(DnsAnswer::NoSuchHost) | None => {
                response.metadata.response_code = ResponseCode::NXDomain;
            }
        }
        Some(response)
    }
}

/// Binds one port for both protocols, because clients expect that.
async fn bind() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = udp.local_addr().expect("it is bound");
        if let Ok(tcp) = TcpListener::bind(address).await {
            return (udp, tcp);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

async fn serve_udp(socket: UdpSocket, zone: Arc<Zone>) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await.expect("a datagram");
        let Some(response) = zone.answer(&buffer[..length]) else {
            continue;
        };
        let mut bytes = response.to_vec().expect("a message");
        // Every client takes a datagram of this size (RFC 1035). Longer answers go over TCP.
        if bytes.len() > 512 {
            bytes = response.truncate().to_vec().expect("a message");
        }
        // The client may have gone away.
        let _ = socket.send_to(&bytes, client).await;
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<Zone>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        connections.spawn(serve_stream(stream, Arc::clone(&zone)));
    }
}

/// Answers queries, each after its length, until the client goes away.
async fn serve_stream(mut stream: TcpStream, zone: Arc<Zone>) {
    while let Ok(length) = stream.read_u16().await {
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.expect("a whole query");
        let Some(response) = zone.answer(&bytes) else {
            continue;
        };
        let bytes = response.to_vec().expect("a message");
        let length = u16::try_from(bytes.len()).expect("a message that fits");
        let _ = stream.write_u16(length).await;
        let _ = stream.write_all(&bytes).await;
    }
}

fn host(query: &Query) -> String {
    let name = query.name().to_lowercase().to_string();
    name.trim_end_matches('.').to_owned()
}
