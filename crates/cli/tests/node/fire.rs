//! Under fire: connections never stop while endpoints change, and the agent and its sources are killed.
//!
//! `CROWFLY_FIRE_SECONDS` is the length of each part; the default is for CI. A minute each:
//! `CROWFLY_FIRE_SECONDS=60 cargo test -p crowfly-cli --test node fire:: -- --nocapture`

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crowfly_control::ControlPlane;

use crate::lab::Lab;
use crate::loads::zoned;
use crate::older;

const BACKENDS: [(&str, &str); 3] = [
    ("127.0.0.1:8080", "a"),
    ("127.0.0.2:8080", "b"),
    ("127.0.0.3:8080", "c"),
];

/// The number of services whose endpoints change with each version of the file.
const SERVICES: usize = 40;

/// The time between two versions: the file must be left alone for 100 ms before it is read.
const PERIOD: Duration = Duration::from_millis(150);

fn seconds() -> Duration {
    let seconds = std::env::var("CROWFLY_FIRE_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// The services at one moment: each has two of three backends.
fn services(version: u64) -> String {
    let mut text = "services:\n".to_owned();
    for number in 0..SERVICES {
        let out = (version as usize + number) % BACKENDS.len();
        let mut backends = BACKENDS.to_vec();
        backends.remove(out);
        text.push_str(&zoned(&format!("s{number}"), &ip(number), &backends));
    }
    text
}

fn ip(number: usize) -> String {
    format!("10.96.1.{number}")
}

/// Writes a new version of the file until it is told to stop.
fn change(config: &Path, stop: &AtomicBool, is_broken: &AtomicBool, versions: &AtomicU64) {
    let new = config.with_extension("new");
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(PERIOD);
        let version = versions.fetch_add(1, Ordering::Relaxed);
        let text = match is_broken.load(Ordering::Relaxed) {
            true => "services: [".to_owned(),
            false => services(version),
        };
        fs::write(&new, text).unwrap();
        fs::rename(&new, config).unwrap();
    }
}

/// Stops the changes when the test ends, however it does.
pub(crate) struct Stopped<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The sums that a control plane was told: opened, failed, closed.
pub(crate) fn told(plane: &ControlPlane) -> (u64, u64, u64) {
    let rows = plane.loads().rows;
    rows.iter().fold((0, 0, 0), |sum, row| {
        (
            sum.0 + row.connections.opened,
            sum.1 + row.connections.failed,
            sum.2 + row.succeeded,
        )
    })
}

pub(crate) fn wait_for_report(plane: &ControlPlane) {
    let (before, begin) = (plane.loads().reports, Instant::now());
    while plane.loads().reports == before {
        assert!(begin.elapsed() < Duration::from_secs(30), "no report");
        thread::sleep(Duration::from_millis(5));
    }
}

/// N-23, N-24, N-58, N-71, N-76, N-77: 1,000 connections a second while the file of services changes six times a
/// second, and the endpoints of all 40 services with it, the agent is upgraded, killed, stopped and restarted, and its source
/// fails: no connection fails, and the counts that our control plane was told equal the truth.
#[test]
fn no_connection_fails_and_all_are_told() {
    let Some(lab) = Lab::new() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let any_port: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let plane = ControlPlane::with_snapshot(Default::default(), any_port, None);
    let plane = runtime.block_on(plane).unwrap();
    plane.set_load_report_interval(Duration::from_secs(1));
    let server = plane.listen_addr().to_string();
    let flags = ["--load-report-server", &server, "--load-report-all"];

    let mut probe = lab.probe();
    for (address, name) in BACKENDS {
        probe.ask(&format!("serve-tcp {address} {name}"));
    }
    lab.agent(&services(0), &flags).stop();
    // Until the first agent under fire, programs of an older version route.
    older::install(&lab);
    let theirs = older::links(&lab);
    let (stop, is_broken) = (AtomicBool::new(false), AtomicBool::new(false));
    let (versions, config) = (AtomicU64::new(1), lab.config());
    let addresses: Vec<_> = (0..SERVICES).map(|number| ip(number) + ":80").collect();
    probe.ask(&format!("fire 1000 {}", addresses.join(",")));
    let begin = Instant::now();
    let agent = thread::scope(|scope| {
        let _stopped = Stopped(&stop);
        scope.spawn(|| change(&config, &stop, &is_broken, &versions));
        // Upgraded.
        let mut agent = lab.adopt(&flags);
        for (name, now) in older::links(&lab) {
            let is_replaced = now.tag != theirs[&name].tag;
            let is_changed = older::CHANGED.contains(&name.as_str());
            assert_eq!(
                (now.id, is_replaced),
                (theirs[&name].id, is_changed),
                "{name}"
            );
        }
        thread::sleep(seconds());

        // Killed right after a report, so that none is on its way, and restarted.
        let end = Instant::now() + seconds();
        while Instant::now() < end {
            wait_for_report(&plane);
            agent.kill();
            agent = lab.adopt(&flags);
        }
        // Stopped and restarted: every program is replaced.
        let end = Instant::now() + seconds();
        while Instant::now() < end {
            wait_for_report(&plane);
            agent.stop();
            agent = lab.adopt(&flags);
        }
        // Its source fails: the last services stay.
        is_broken.store(true, Ordering::Relaxed);
        agent.wait(|view| view.sources[0].status.starts_with("failed"));
        thread::sleep(seconds());
        is_broken.store(false, Ordering::Relaxed);
        agent.wait(|view| view.sources[0].status.starts_with("synced"));
        agent
    });
    let counts = probe.counts("calm");
    let took = begin.elapsed().as_secs_f64();
    let all: usize = counts.iter().map(|it| it.1).sum();
    let names: Vec<_> = counts.iter().map(|it| it.0.as_str()).collect();
    let changes = versions.into_inner() * SERVICES as u64;
    println!(
        "{all} connections in {took:.1} s, {:.0} a second; {:.0} endpoint changes a second: {counts:?}",
        all as f64 / took,
        changes as f64 / took
    );
    assert_eq!(names, ["a", "b", "c"], "{counts:?}\n{}", agent.log());
    let truth = (all as u64, 0, all as u64);
    let begin = Instant::now();
    while told(&plane) != truth {
        let told = told(&plane);
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{told:?}, {truth:?}"
        );
        thread::sleep(Duration::from_millis(50));
    }
    // A row of each cluster and locality, under the name of the service.
    let rows = plane.loads().rows;
    assert_eq!(rows.len(), SERVICES * BACKENDS.len());
    assert!(rows.iter().all(|row| row.cluster.starts_with("default/s")));
    assert_eq!(plane.loads().reporters[0].node, "n1");
    drop(agent);
    runtime.block_on(plane.shutdown());
}
