//! A process in a cgroup and a network namespace of its own, which opens sockets when it is told to.
//!
//! It is this test binary, started again: [`run`] obeys lines of standard input and answers each with
//! one line. A socket keeps the cgroup that it was made in, so the process joins its cgroup first.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Builder;

/// The variable that makes this binary a probe: the directory of its cgroup.
pub(crate) const CGROUP: &str = "CROWFLY_NODE_PROBE";

/// Begins each answer, because the test harness prints lines of its own.
pub(crate) const ANSWER: &str = "probe: ";

const TIMEOUT: Duration = Duration::from_secs(10);

/// The wait for an answer that may never come.
const SHORT: Duration = Duration::from_millis(300);

/// Obeys until standard input ends.
pub(crate) fn run() {
    let cgroup = env::var(CGROUP).unwrap();
    fs::write(format!("{cgroup}/cgroup.procs"), "0").unwrap();
    let mut probe = Probe::default();
    for line in io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = probe.obey(&words).unwrap_or_else(|error| name(&error));
        println!("{ANSWER}{answer}");
    }
}

#[derive(Default)]
struct Probe {
    held: Vec<TcpStream>,
    held_udp: Vec<UdpSocket>,
    storm: Option<(Arc<AtomicBool>, JoinHandle<Counts>)>,
}

/// How often each thing happened: the name of a backend, or of an error.
type Counts = BTreeMap<String, usize>;

impl Probe {
    fn obey(&mut self, words: &[&str]) -> io::Result<String> {
        match *words {
            ["serve-tcp", address, name] => serve_tcp(address, name),
            ["serve-udp", address, name] => serve_udp(address, name),
            ["tcp", address, count] => Ok(repeat(count, || visit(address))),
            ["serve-mptcp", address, name] => serve_mptcp(address, name),
            ["mptcp", address, count] => {
                Ok(repeat(count, || read_name(&mut connect_mptcp(address)?)))
            }
            ["mptcp-accepted"] => mptcp_accepted(),
            ["udp", address, count] => Ok(repeat(count, || send(address))),
            ["udp-connected", address, count] => Ok(repeat(count, || send_connected(address))),
            ["peer", address] => Ok(TcpStream::connect(address)?.peer_addr()?.to_string()),
            ["echo-tcp", address, size] => echo_tcp(address, size.parse().unwrap()),
            ["echo-udp", address, size] => echo_udp(address, size.parse().unwrap()),
            ["hold", address, count] => self.hold(count, || TcpStream::connect(address)),
            ["hold-mptcp", address, count] => self.hold(count, || connect_mptcp(address)),
            ["let-go", count] => {
                self.held
                    .truncate(self.held.len() - count.parse::<usize>().unwrap());
                Ok("ok".to_owned())
            }
            ["use-held"] => {
                for stream in &mut self.held {
                    stream.write_all(b"x")?;
                    stream.read_exact(&mut [0])?;
                }
                Ok("ok".to_owned())
            }
            ["storm", address] => {
                let stop = Arc::new(AtomicBool::new(false));
                let (stopped, address) = (Arc::clone(&stop), address.to_owned());
                let storm = thread::spawn(move || {
                    let mut counts = Counts::new();
                    while !stopped.load(Ordering::Relaxed) {
                        count(&mut counts, visit(&address));
                        thread::sleep(Duration::from_micros(500));
                    }
                    counts
                });
                self.storm = Some((stop, storm));
                Ok("ok".to_owned())
            }
            ["fire", rate, addresses] => {
                let stop = Arc::new(AtomicBool::new(false));
                let (stopped, rate) = (Arc::clone(&stop), rate.parse().unwrap());
                let addresses: Vec<String> = addresses.split(',').map(str::to_owned).collect();
                let storm = thread::spawn(move || fire(rate, &addresses, &stopped));
                self.storm = Some((stop, storm));
                Ok("ok".to_owned())
            }
            ["udp-until", address, wanted] => until(address.parse().unwrap(), wanted),
            ["calm"] => {
                let (stop, storm) = self.storm.take().unwrap();
                stop.store(true, Ordering::Relaxed);
                Ok(show(&storm.join().unwrap()))
            }
            _ => self.obey_held_udp(words),
        }
    }

    /// Keeps so many connections, each of which a backend has answered.
    fn hold(
        &mut self,
        count: &str,
        connect: impl Fn() -> io::Result<TcpStream>,
    ) -> io::Result<String> {
        for _ in 0..count.parse().unwrap() {
            let mut stream = connect()?;
            read_name(&mut stream)?;
            self.held.push(stream);
        }
        Ok("ok".to_owned())
    }

    /// Obeys a command for UDP sockets that are held.
    fn obey_held_udp(&mut self, words: &[&str]) -> io::Result<String> {
        match *words {
            ["hold-udp", address] => {
                let address: SocketAddr = address.parse().unwrap();
                let socket = udp_socket(address)?;
                // A server answers, or the socket is ended: silence is neither, however busy the machine is.
                socket.set_read_timeout(Some(TIMEOUT))?;
                socket.connect(address)?;
                self.held_udp.push(socket);
                Ok("ok".to_owned())
            }
            ["use-held-udp"] => {
                let answers = self.held_udp.iter().map(|socket| {
                    let answer = exchange(socket);
                    answer.unwrap_or_else(|error| name(&error))
                });
                Ok(answers.collect::<Vec<_>>().join(" "))
            }
            ["disconnect-held-udp"] => {
                for socket in &self.held_udp {
                    rustix::net::connect_unspec(socket)?;
                }
                Ok("ok".to_owned())
            }
            ["send-by-held-udp", address] => {
                let answers = self.held_udp.iter().map(|socket| {
                    let answer = send_by(socket, address.parse().unwrap());
                    answer.unwrap_or_else(|error| name(&error))
                });
                Ok(answers.collect::<Vec<_>>().join(" "))
            }
            _ => panic!("{words:?}"),
        }
    }
}

/// Connects so often a second, on four threads, to each address in turn.
fn fire(rate: u32, addresses: &[String], stop: &AtomicBool) -> Counts {
    const THREADS: usize = 4;
    let pause = Duration::from_secs(1) * THREADS as u32 / rate;
    let mut sum = Counts::new();
    thread::scope(|scope| {
        let visitors = (0..THREADS).map(|number| {
            scope.spawn(move || {
                let mut counts = Counts::new();
                let mut next = Instant::now();
                for address in addresses.iter().cycle().skip(number) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    count(&mut counts, visit(address));
                    next += pause;
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                counts
            })
        });
        let visitors: Vec<_> = visitors.collect();
        for visitor in visitors {
            for (what, count) in visitor.join().unwrap() {
                *sum.entry(what).or_default() += count;
            }
        }
    });
    sum
}

/// Asks by a connected socket until a backend answers, as a program does that connects anew after an error
/// and after nothing else.
fn until(address: SocketAddr, wanted: &str) -> io::Result<String> {
    let connect = || -> io::Result<UdpSocket> {
        let socket = udp_socket(address)?;
        socket.set_read_timeout(Some(SHORT))?;
        socket.connect(address)?;
        Ok(socket)
    };
    let begin = Instant::now();
    let mut socket = None;
    let mut last = String::new();
    while begin.elapsed() < TIMEOUT {
        let answer = match &socket {
            Some(socket) => exchange(socket),
            None => match connect() {
                Ok(new) => exchange(socket.insert(new)),
                Err(error) => Err(error),
            },
        };
        match answer {
            Ok(answer) if answer == wanted => return Ok(answer),
            Ok(answer) => last = answer,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => last = "silence".to_owned(),
            Err(error) => {
                last = name(&error);
                socket = None;
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(format!("at last: {last}"))
}

/// Sends by a connected socket, and returns the answer.
fn exchange(socket: &UdpSocket) -> io::Result<String> {
    socket.send(b"?")?;
    let mut buffer = [0; 100];
    let size = socket.recv(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}

fn repeat(times: &str, mut visit: impl FnMut() -> io::Result<String>) -> String {
    let mut counts = Counts::new();
    for _ in 0..times.parse().unwrap() {
        count(&mut counts, visit());
    }
    show(&counts)
}

fn count(counts: &mut Counts, result: io::Result<String>) {
    let what = result.unwrap_or_else(|error| name(&error));
    *counts.entry(what).or_default() += 1;
}

fn show(counts: &Counts) -> String {
    let counts = counts.iter().map(|(name, count)| format!("{name}={count}"));
    counts.collect::<Vec<_>>().join(" ")
}

fn name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(89) => "EDESTADDRREQ".to_owned(),
        Some(101) => "ENETUNREACH".to_owned(),
        Some(103) => "ECONNABORTED".to_owned(),
        Some(111) => "ECONNREFUSED".to_owned(),
        Some(113) => "EHOSTUNREACH".to_owned(),
        _ => format!("{error}").replace(' ', "-"),
    }
}

fn serve_tcp(address: &str, name: &str) -> io::Result<String> {
    serve(TcpListener::bind(address)?, name)
}

fn serve_mptcp(address: &str, name: &str) -> io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    let socket = mptcp_socket(address)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    serve(socket.into(), name)
}

/// Answers with the name, and then with what comes. All connections are on one thread, because to start one for each
/// takes a lock of the whole process, for which all wait if the machine is busy.
fn serve(listener: TcpListener, name: &str) -> io::Result<String> {
    let (bound, name) = (listener.local_addr()?, format!("{name}\n"));
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that has gone is no failure of this server.
            tokio::spawn(echo(stream, name.clone()));
        }
    };
    thread::spawn(move || runtime.block_on(serve));
    Ok(bound.to_string())
}

async fn echo(mut stream: tokio::net::TcpStream, name: String) -> io::Result<u64> {
    stream.write_all(name.as_bytes()).await?;
    let (mut reader, mut writer) = stream.split();
    tokio::io::copy(&mut reader, &mut writer).await
}

fn serve_udp(address: &str, name: &str) -> io::Result<String> {
    let socket = UdpSocket::bind(address)?;
    let (bound, name) = (socket.local_addr()?, name.to_owned());
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        loop {
            let (size, from) = socket.recv_from(&mut buffer).unwrap();
            // A large datagram comes back; a small one is answered with the name.
            let answer = if size > 100 {
                &buffer[..size]
            } else {
                name.as_bytes()
            };
            let _ = socket.send_to(answer, from);
        }
    });
    Ok(bound.to_string())
}

/// Connects, and returns the name of whoever answers.
fn visit(address: &str) -> io::Result<String> {
    read_name(&mut TcpStream::connect(address)?)
}

fn connect_mptcp(address: &str) -> io::Result<TcpStream> {
    let address: SocketAddr = address.parse().unwrap();
    let socket = mptcp_socket(address)?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

fn mptcp_socket(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP))
}

/// The connections that servers in this namespace have accepted as MPTCP. One that fell back to TCP is not among them.
fn mptcp_accepted() -> io::Result<String> {
    let text = fs::read_to_string("/proc/self/net/netstat")?;
    // A line of names, and one of numbers.
    let mut lines = text.lines().filter(|line| line.starts_with("MPTcpExt:"));
    let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
    let mut counters = names.split(' ').zip(numbers.split(' '));
    let found = counters.find(|(name, _)| *name == "MPCapableACKRX");
    Ok(found.unwrap().1.to_owned())
}

fn read_name(stream: &mut TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut name = String::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        match byte[0] {
            b'\n' => return Ok(name),
            byte => name.push(char::from(byte)),
        }
    }
}

/// Sends from a socket that is not connected. The answer must come from where the question went.
fn send(address: &str) -> io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    send_by(&udp_socket(address)?, address)
}

fn send_by(socket: &UdpSocket, address: SocketAddr) -> io::Result<String> {
    socket.send_to(b"?", address)?;
    let mut buffer = [0; 100];
    let (size, from) = socket.recv_from(&mut buffer)?;
    if from != address {
        return Ok(format!("answer-from-{from}"));
    }
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}

fn send_connected(address: &str) -> io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    let socket = udp_socket(address)?;
    socket.connect(address)?;
    if socket.peer_addr()? != address {
        return Ok(format!("peer-{}", socket.peer_addr()?));
    }
    socket.send(b"?")?;
    let mut buffer = [0; 100];
    let (size, from) = socket.recv_from(&mut buffer)?;
    if from != address {
        return Ok(format!("answer-from-{from}"));
    }
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}

fn udp_socket(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

fn echo_tcp(address: &str, size: usize) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    read_name(&mut stream)?;
    let sent = pattern(size);
    let mut writer = stream.try_clone()?;
    let to_send = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&to_send));
    let mut received = vec![0; size];
    stream.read_exact(&mut received)?;
    writing.join().unwrap()?;
    Ok((received == sent).to_string())
}

fn echo_udp(address: &str, size: usize) -> io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    let socket = udp_socket(address)?;
    let sent = pattern(size);
    socket.send_to(&sent, address)?;
    let mut received = vec![0; 65_536];
    let (size, _) = socket.recv_from(&mut received)?;
    Ok((received[..size] == sent).to_string())
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8).collect()
}
