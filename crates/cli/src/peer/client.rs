//! A client that connects as its orders say, and measures. The client is a process of its own,
//! because its sockets must belong to a namespace and a cgroup.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant, SystemTime},
};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{ASK, NAME, TAKE};
use crate::output;

/// The distance between targets that follow one another: a prime, so that all of them get their turn.
const STRIDE: u32 = 7_919;

/// An odd number whose multiples look random: 2^32 divided by the golden ratio.
const SCATTER: u32 = 2_654_435_769;

/// The time between two reports of [`Order::Keep`].
const REPORT: Duration = Duration::from_millis(100);

/// The time that a server has to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// An order for the client. The client answers each order with one line of JSON, except where an
/// order says otherwise.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Connects, asks and closes, over and over; the answer is a [`Sample`].
    Connects { targets: Targets, millis: u64 },
    /// Asks over and over on one connection; the answer is a [`Sample`].
    Requests { targets: Targets, millis: u64 },
    /// Sends bytes on one connection; the answer is a [`Sample`] of one.
    Stream { targets: Targets, bytes: u64 },
    /// Connects until one of these answers; the answer is a [`Seen`].
    Until {
        target: SocketAddr,
        names: Vec<String>,
    },
    /// Connects at a steady rate, until the next line comes. The answers are a [`Seen`] every 100
    /// ms, each for that time.
    Keep { target: SocketAddr, rps: u32 },
}

/// Services whose addresses follow one another.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Targets {
    pub(crate) first: Ipv4Addr,
    /// The number of services.
    pub(crate) count: u32,
    /// The number of addresses of each service.
    pub(crate) each: u32,
    pub(crate) port: u16,
}

impl Targets {
    /// The services take turns, and each turn takes any of the addresses of its service.
    fn at(&self, turn: u32) -> SocketAddr {
        let service = turn.wrapping_mul(STRIDE) % self.count.max(1);
        let address = (turn.wrapping_mul(SCATTER) >> 16) % self.each.max(1);
        let address = self.first.to_bits() + service * self.each + address;
        SocketAddr::from((Ipv4Addr::from_bits(address), self.port))
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Sample {
    /// The number of connections or requests.
    pub(crate) count: u64,
    /// The time for all of them.
    pub(crate) seconds: f64,
    /// The time that half of them took at most, in microseconds.
    pub(crate) p50: f64,
    /// The time that 99 of 100 took at most, in microseconds.
    pub(crate) p99: f64,
}

impl Sample {
    /// The connections or requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }
}

/// The answers of connections.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Seen {
    /// Answers by the name of the server.
    pub(crate) answers: BTreeMap<String, u64>,
    /// Failures by their error.
    pub(crate) failures: BTreeMap<String, u64>,
    /// The time of each failure, of [`Order::Keep`] only.
    pub(crate) failed: Vec<Failure>,
    /// True for the last report.
    pub(crate) done: bool,
}

/// A connection that failed: the time when it began, and the time when the failure was known. See
/// [`micros`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// The time in microseconds since 1970, which all processes of a machine share.
pub(crate) fn micros() -> u64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = time.unwrap_or_default().as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// Obeys orders until standard input ends.
pub(super) fn obey() -> io::Result<()> {
    let (sender, orders) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    // A sample goes on where the one before ended, so that many short samples reach every target.
    let mut turn = 0;
    while let Ok(line) = orders.recv() {
        // An empty line ends an order that goes on until then.
        if line.is_empty() {
            continue;
        }
        match serde_json::from_str(&line)? {
            Order::Connects { targets, millis } => say(&connects(targets, millis, &mut turn)?),
            Order::Requests { targets, millis } => say(&requests(targets, millis)?),
            Order::Stream { targets, bytes } => say(&stream(targets, bytes)?),
            Order::Until { target, names } => say(&until(target, &names)),
            Order::Keep { target, rps } => keep(target, rps, &orders),
        }
    }
    Ok(())
}

fn say(answer: &impl Serialize) {
    // The values hold text and numbers only, so JSON can express them.
    output::line(serde_json::to_string(answer).unwrap_or_default());
}

fn connects(targets: Targets, millis: u64, turn: &mut u32) -> io::Result<Sample> {
    let mut answer = [0];
    measure(millis, || {
        *turn = turn.wrapping_add(1);
        let mut stream = TcpStream::connect(targets.at(*turn))?;
        stream.write_all(&[ASK])?;
        stream.read_exact(&mut answer)
    })
}

fn requests(targets: Targets, millis: u64) -> io::Result<Sample> {
    let mut stream = TcpStream::connect(targets.at(0))?;
    stream.set_nodelay(true)?;
    let mut answer = [0];
    measure(millis, || {
        stream.write_all(&[ASK])?;
        stream.read_exact(&mut answer)
    })
}

/// Does something over and over, for a time.
fn measure(millis: u64, mut act: impl FnMut() -> io::Result<()>) -> io::Result<Sample> {
    let mut times = Histogram::<u64>::new(3).map_err(io::Error::other)?;
    let begin = Instant::now();
    let end = begin + Duration::from_millis(millis);
    let mut last = begin;
    let mut count = 0;
    while last < end {
        act()?;
        count += 1;
        let now = Instant::now();
        let nanos = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
        times.record(nanos).map_err(io::Error::other)?;
        last = now;
    }
    Ok(Sample {
        count,
        seconds: (last - begin).as_secs_f64(),
        p50: times.value_at_quantile(0.5) as f64 / 1e3,
        p99: times.value_at_quantile(0.99) as f64 / 1e3,
    })
}

fn stream(targets: Targets, bytes: u64) -> io::Result<Sample> {
    let mut stream = TcpStream::connect(targets.at(0))?;
    let block = vec![0; 128 * 1024];
    let begin = Instant::now();
    stream.write_all(&[TAKE])?;
    stream.write_all(&bytes.to_be_bytes())?;
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        stream.write_all(&block[..part])?;
        left -= part as u64;
    }
    stream.read_exact(&mut [0])?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Sample {
        count: bytes,
        seconds,
        p50: seconds * 1e6,
        p99: seconds * 1e6,
    })
}

fn until(target: SocketAddr, names: &[String]) -> Seen {
    let mut seen = Seen::default();
    loop {
        let answer = ask_name(target);
        let is_last = answer.as_ref().is_ok_and(|name| names.contains(name));
        seen.add(answer);
        if is_last {
            seen.done = true;
            return seen;
        }
    }
}

fn keep(target: SocketAddr, rps: u32, orders: &Receiver<String>) {
    let pause = Duration::from_secs(1) / rps.max(1);
    let mut next = Instant::now();
    let mut report = next + REPORT;
    let mut seen = Seen::default();
    loop {
        let began = micros();
        let answer = ask_name(target);
        if answer.is_err() {
            let ended = micros();
            seen.failed.push(Failure { began, ended });
        }
        seen.add(answer);
        next += pause;
        if next >= report {
            report += REPORT;
            say(&std::mem::take(&mut seen));
        }
        let wait = next.saturating_duration_since(Instant::now());
        match orders.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                seen.done = true;
                return say(&seen);
            }
        }
    }
}

impl Seen {
    fn add(&mut self, answer: io::Result<String>) {
        let count = match answer {
            Ok(name) => self.answers.entry(name).or_default(),
            Err(error) => self.failures.entry(error.to_string()).or_default(),
        };
        *count += 1;
    }
}

fn ask_name(target: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&target, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&[NAME])?;
    let mut name = String::new();
    BufReader::new(&stream).read_line(&mut name)?;
    if name.pop().is_none() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the server ended the connection",
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_target_gets_its_turn() {
        let mut targets = Targets {
            first: Ipv4Addr::new(10, 96, 0, 250),
            count: 1_000,
            each: 1,
            port: 80,
        };
        let visited: BTreeSet<_> = (0..1_000).map(|turn| targets.at(turn)).collect();
        assert_eq!(visited.len(), 1_000);
        let last = SocketAddr::from((Ipv4Addr::new(10, 96, 4, 225), 80));
        assert_eq!(visited.last(), Some(&last));

        // A turn reaches the same service, whether by its one address or by any of its backends.
        targets.each = 3;
        let first = targets.first.to_bits();
        let number = |address: SocketAddr| match address {
            SocketAddr::V4(address) => address.ip().to_bits() - first,
            SocketAddr::V6(_) => unreachable!("all targets are IPv4"),
        };
        let mut of_members = [0; 3];
        for turn in 0..30_000 {
            let index = number(targets.at(turn));
            let by_service = Targets { each: 1, ..targets };
            assert_eq!(index / 3, number(by_service.at(turn)));
            of_members[(index % 3) as usize] += 1;
        }
        assert!(
            of_members.iter().all(|&count| count > 9_500),
            "{of_members:?}"
        );
    }
}
