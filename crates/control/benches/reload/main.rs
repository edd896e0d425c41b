//! One changed endpoint among 10,000 services: from the file event to the bytes on an ADS stream.
//!
//! `cargo bench -p crowfly-control`. The services are in one file or in a file each. A round replaces
//! one file by a rename and waits for the response that carries the change. The control plane reads a
//! file once it has been unchanged for 100 ms, so each time is also given less that wait.
//!
//! Only interfaces of long standing are used, so that the same source measures older versions.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench"
)]

mod fleet;
mod stream;

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use crowfly_control::{Catalog, ControlPlane, Options, Ports, translate};

use fleet::{Fleet, Layout};
use stream::{Kind, Stream};

const SERVICES: usize = 10_000;
const ROUNDS: usize = 15;
/// How long a file must be unchanged before it is read.
const QUIET: Duration = Duration::from_millis(100);

#[tokio::main(worker_threads = 2)]
async fn main() {
    println!("{SERVICES} services, {ROUNDS} rounds; median (minimum .. maximum), in ms\n");
    for layout in [Layout::OneFile, Layout::FileEach] {
        println!("{}", layout.title(SERVICES));
        from_scratch(layout);
        for kind in Kind::ALL {
            from_file_to_stream(layout, kind).await;
        }
        println!();
    }
    println!("one changed resource, from set_snapshot to the stream");
    for kind in Kind::ALL {
        from_store_to_stream(kind).await;
    }
}

/// The time to read everything and the time to translate it: the parts of a reload that starts over.
fn from_scratch(layout: Layout) {
    let fleet = Fleet::new(SERVICES, layout);
    let files = fleet.files();
    let mut parse = Vec::new();
    let mut translation = Vec::new();
    for _ in 0..3 {
        let begin = Instant::now();
        let catalog = Catalog::read(&files).unwrap();
        parse.push(begin.elapsed());
        let begin = Instant::now();
        translate(&catalog).unwrap();
        translation.push(begin.elapsed());
    }
    print("  all of it from scratch: parse", parse);
    print("  all of it from scratch: translate", translation);
}

async fn from_file_to_stream(layout: Layout, kind: Kind) {
    let mut fleet = Fleet::new(SERVICES, layout);
    let plane = ControlPlane::start(Options::new(fleet.config(), Ports::new(any_port())));
    let plane = plane.await.unwrap();
    let mut stream = Stream::open(plane.listen_addr(), kind, &fleet.names()).await;
    let mut reloads = plane.reloads();
    let [mut total, mut stored, mut sent] = [(); 3].map(|()| Vec::new());
    for round in 0..=ROUNDS {
        let ready = fleet.prepare(SERVICES / 2, round);
        let (begin, at) = (Instant::now(), SystemTime::now());
        ready.rename();
        stream.next().await;
        let arrived = (begin.elapsed(), SystemTime::now());
        reloads.changed().await.unwrap();
        let reload = reloads.borrow_and_update().clone();
        let changes = reload.result.unwrap().to_string();
        assert!(changes.starts_with("added 0, changed 1: "), "{changes}");
        if round > 0 {
            total.push(arrived.0);
            stored.push(reload.at.duration_since(at).unwrap_or_default());
            sent.push(arrived.1.duration_since(reload.at).unwrap_or_default());
        }
    }
    let less = |times: &[Duration]| times.iter().map(|t| t.saturating_sub(QUIET)).collect();
    println!("  {}", kind.title());
    let (active, store) = (less(&total), less(&stored));
    print("    file event to bytes on the stream", total);
    print("    the same, less the 100 ms of waiting", active);
    print("    of that: to the new snapshot in the store", store);
    print("    of that: from there to the stream", sent);
    plane.shutdown().await;
}

async fn from_store_to_stream(kind: Kind) {
    let mut fleet = Fleet::new(SERVICES, Layout::OneFile);
    let mut snapshot = |round| {
        fleet.prepare(SERVICES / 2, round).rename();
        translate(&Catalog::read(&fleet.files()).unwrap()).unwrap()
    };
    let mut next = [snapshot(0), snapshot(1)].into_iter().cycle();
    let first = snapshot(2);
    let plane = ControlPlane::with_snapshot(first, any_port(), None);
    let plane = plane.await.unwrap();
    let mut stream = Stream::open(plane.listen_addr(), kind, &fleet.names()).await;
    let [mut set, mut total] = [(); 2].map(|()| Vec::new());
    for round in 0..=ROUNDS {
        let snapshot = next.next().unwrap();
        let begin = Instant::now();
        plane.set_snapshot(snapshot);
        let is_set = begin.elapsed();
        stream.next().await;
        if round > 0 {
            set.push(is_set);
            total.push(begin.elapsed());
        }
    }
    println!("  {}", kind.title());
    print("    set_snapshot, the view of Envoys included", set);
    print("    set_snapshot to bytes on the stream", total);
    plane.shutdown().await;
}

fn print(title: &str, mut times: Vec<Duration>) {
    times.sort();
    let [median, min, max] = [times.len() / 2, 0, times.len() - 1];
    let ms = |i: usize| times[i].as_secs_f64() * 1_000.0;
    println!(
        "{title:<48}{:>9.2} ({:.2} .. {:.2})",
        ms(median),
        ms(min),
        ms(max)
    );
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
