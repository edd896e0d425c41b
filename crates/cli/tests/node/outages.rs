//! Under fire from all sides: an agent with four sources, each of which is killed for a while.
//!
//! `CROWFLY_FIRE_SECONDS` is the length of each outage; the default is for CI. A minute each:
//! `CROWFLY_FIRE_SECONDS=60 cargo test -p crowfly-cli --test node outages:: -- --nocapture`

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crowfly_control::ControlPlane;
use crowfly_e2e::etcd::Etcd;
use crowfly_e2e::peers;
use crowfly_testkit::KubeApi;
use tokio::runtime::Runtime;

use crate::control::Control;
use crate::fire::{Stopped, told, wait_for_report};
use crate::kubernetes::{service, slice};
use crate::lab::{Agent, Lab};
use crate::loads::zoned;

/// The backends of all services. They exist throughout, so that a source that is not heard misses nothing.
const BACKENDS: [&str; 3] = ["198.51.100.1", "198.51.100.2", "198.51.100.3"];

/// The services of each source.
const SERVICES: usize = 10;

/// An agent may wait for two minutes before it asks a server again that was down for long.
const PATIENCE: Duration = Duration::from_secs(150);

fn seconds() -> Duration {
    let seconds = std::env::var("CROWFLY_FIRE_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// Two of the three backends, others for each version.
fn backends(version: u64, number: usize) -> [&'static str; 2] {
    let out = (version as usize + number) % BACKENDS.len();
    let rest = BACKENDS.iter().enumerate().filter(|(at, _)| *at != out);
    let rest: Vec<_> = rest.map(|(_, address)| *address).collect();
    [rest[0], rest[1]]
}

fn of_file(version: u64) -> String {
    let services = (0..SERVICES).map(|number| {
        let [a, b] = backends(version, number).map(|address| format!("{address}:8080"));
        zoned(
            &format!("f{number}"),
            &format!("10.96.4.{number}"),
            &[(&a, "a"), (&b, "b")],
        )
    });
    format!("services:\n{}", services.collect::<String>())
}

fn of_xds(version: u64) -> String {
    let services = (0..SERVICES).map(|number| {
        let [a, b] = backends(version, number);
        format!(
            "- name: xds/x{number}\n  cluster_ip: 10.96.3.{number}\n  ports: [{{ port: 80, target_port: 8080 }}]\n  \
             endpoints: [{{ address: '{a}:8080' }}, {{ address: '{b}:8080' }}]\n"
        )
    });
    format!("services:\n{}", services.collect::<String>())
}

fn put_in_etcd(etcd: &Etcd, version: u64, number: usize) {
    let backends = backends(version, number);
    let backends = backends
        .map(|address| format!(r#""{address}":{{"http":{{"Protocol":"TCP","Port":8080}}}}"#));
    let (key, backends) = (
        format!("cilium/state/services/v1/east/ns/e{number}"),
        backends.join(","),
    );
    let value = format!(
        r#"{{"cluster":"east","namespace":"ns","name":"e{number}","clusterID":3,"shared":true,
            "includeExternal":true,"labels":{{}},"selector":null,
            "frontends":{{"10.96.2.{number}":{{"http":{{"Protocol":"TCP","Port":80}}}}}},
            "backends":{{{backends}}}}}"#
    );
    etcd.put(&key, &value);
}

fn put_in_kubernetes(api: &KubeApi, version: u64, number: usize) {
    let endpoints = backends(version, number).map(|address| (address, true));
    api.apply(&slice(&format!("k{number}"), &endpoints));
}

/// The sources of an agent. Each is behind a lock, because threads change its services while the test kills it.
struct World {
    runtime: Runtime,
    api: Mutex<KubeApi>,
    /// `None` on a machine without it.
    etcd: Option<Mutex<(Etcd, bool)>>,
    control: Mutex<Control>,
    file: PathBuf,
    /// False while the file is removed.
    has_file: Mutex<bool>,
    stop: AtomicBool,
    /// Changes of endpoints of one service.
    changes: AtomicU64,
}

impl World {
    fn start(lab: &Lab) -> Self {
        let runtime = Runtime::new().unwrap();
        let api = runtime.block_on(KubeApi::start());
        // The port of the etcd belongs to a runtime.
        let entered = runtime.enter();
        let etcd = peers::etcd().map(Etcd::start);
        drop(entered);
        if let Some(etcd) = &etcd {
            etcd.put("cilium/cluster-config/east", r#"{"id":3}"#);
        }
        for number in 0..SERVICES {
            api.apply(&service(
                &format!("k{number}"),
                &format!("10.96.1.{number}"),
            ));
            put_in_kubernetes(&api, 0, number);
            if let Some(etcd) = &etcd {
                put_in_etcd(etcd, 0, number);
            }
        }
        fs::write(lab.config(), of_file(0)).unwrap();
        Self {
            runtime,
            api: Mutex::new(api),
            etcd: etcd.map(|etcd| Mutex::new((etcd, true))),
            control: Mutex::new(Control::start(lab, &of_xds(0))),
            file: lab.config(),
            has_file: Mutex::new(true),
            stop: AtomicBool::new(false),
            changes: AtomicU64::new(0),
        }
    }

    fn flags(&self) -> Vec<String> {
        let mut flags = vec![
            "--kubernetes-server".to_owned(),
            self.api.lock().unwrap().url(),
            "--xds-server".to_owned(),
            self.control.lock().unwrap().address.clone(),
        ];
        if let Some(etcd) = &self.etcd {
            flags.push("--kvstore-endpoints".to_owned());
            flags.push(format!("http://{}", etcd.lock().unwrap().0.address));
        }
        flags
    }

    fn sources(&self) -> Vec<&'static str> {
        let mut sources = vec!["kubernetes", "xds", "file"];
        if self.etcd.is_some() {
            sources.push("kvstore");
        }
        sources
    }

    /// An address of each service.
    fn addresses(&self) -> Vec<String> {
        let nets = [(1, true), (2, self.etcd.is_some()), (3, true), (4, true)];
        let nets = nets.iter().filter(|net| net.1);
        nets.flat_map(|(net, _)| (0..SERVICES).map(move |it| format!("10.96.{net}.{it}:80")))
            .collect()
    }

    fn kill(&self, source: &str) {
        match source {
            "kubernetes" => self.runtime.block_on(self.api.lock().unwrap().stop()),
            "xds" => self.control.lock().unwrap().kill(),
            "file" => {
                let mut has_file = self.has_file.lock().unwrap();
                fs::remove_file(&self.file).unwrap();
                *has_file = false;
            }
            _ => {
                let mut etcd = self.etcd.as_ref().unwrap().lock().unwrap();
                etcd.0.kill();
                etcd.1 = false;
            }
        }
    }

    fn resume(&self, source: &str) {
        match source {
            "kubernetes" => {
                let _entered = self.runtime.enter();
                self.api.lock().unwrap().resume();
            }
            "xds" => self.control.lock().unwrap().resume(),
            "file" => {
                let mut has_file = self.has_file.lock().unwrap();
                self.write_file(0);
                *has_file = true;
            }
            _ => {
                let mut etcd = self.etcd.as_ref().unwrap().lock().unwrap();
                etcd.0.resume();
                etcd.1 = true;
            }
        }
    }

    fn write_file(&self, version: u64) {
        let new = self.file.with_extension("new");
        fs::write(&new, of_file(version)).unwrap();
        fs::rename(&new, &self.file).unwrap();
    }

    /// Calls a change again and again, with the number of the call. It returns the services that it changed.
    fn repeat(&self, period: Duration, change: impl Fn(u64) -> usize) {
        let mut version = 1;
        while !self.stop.load(Ordering::Relaxed) {
            let changed = change(version);
            self.changes.fetch_add(changed as u64, Ordering::Relaxed);
            version += 1;
            thread::sleep(period);
        }
    }

    fn change_kubernetes(&self) {
        self.repeat(Duration::from_millis(20), |version| {
            let number = version as usize % SERVICES;
            put_in_kubernetes(&self.api.lock().unwrap(), version, number);
            1
        });
    }

    fn change_etcd(&self) {
        let Some(etcd) = &self.etcd else { return };
        self.repeat(Duration::from_millis(100), |version| {
            let etcd = etcd.lock().unwrap();
            if etcd.1 {
                put_in_etcd(&etcd.0, version, version as usize % SERVICES);
            }
            usize::from(etcd.1)
        });
    }

    /// A file is read once it has been left alone for 100 ms.
    fn change_files(&self) {
        self.repeat(Duration::from_millis(250), |version| {
            self.control.lock().unwrap().serve(&of_xds(version));
            let has_file = self.has_file.lock().unwrap();
            if *has_file {
                self.write_file(version);
            }
            2 * SERVICES
        });
    }
}

/// Waits for a state of a source.
fn wait(agent: &Agent<'_>, source: &str, status: &str) {
    let begin = Instant::now();
    loop {
        let view = agent.view();
        let mut sources = view.sources.iter();
        let now = &sources.find(|it| it.name == source).unwrap().status;
        if now.starts_with(status) {
            return;
        }
        let log = agent.log();
        assert!(begin.elapsed() < PATIENCE, "{source}: {now}\n{log}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Kills each source for a while. After each, the agent is killed or stopped, and the same version started again.
fn fire<'a>(lab: &'a Lab, world: &World, flags: &[&str], plane: &ControlPlane) -> Agent<'a> {
    let mut agent = lab.adopt(flags);
    thread::sleep(seconds());
    for (round, source) in world.sources().into_iter().enumerate() {
        let begin = Instant::now();
        world.kill(source);
        wait(&agent, source, "failed");
        let noticed = begin.elapsed().as_secs_f64();
        thread::sleep(seconds());
        world.resume(source);
        let begin = Instant::now();
        wait(&agent, source, "synced");
        let back = begin.elapsed().as_secs_f64();
        println!("{source}: noticed after {noticed:.2} s, back after {back:.2} s");
        // Right after a report, so that none is on its way.
        wait_for_report(plane);
        if round % 2 == 0 {
            agent.kill();
        } else {
            agent.stop();
        }
        agent = lab.adopt(flags);
    }
    agent
}

/// N-23, N-24, N-58, N-71, N-76, N-77: 1,000 connections a second to services of Kubernetes, a real etcd, our control
/// plane and a file, whose endpoints change 100 times a second. Each source is killed for a while and comes
/// back, and the agent is killed, or stopped, and started again in between: no connection fails, and the counts that
/// another control plane was told equal the truth.
#[test]
fn each_source_is_killed_and_no_connection_fails() {
    let Some(lab) = Lab::new() else { return };
    let world = World::start(&lab);
    let any_port: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let plane = ControlPlane::with_snapshot(Default::default(), any_port, None);
    let plane = world.runtime.block_on(plane).unwrap();
    plane.set_load_report_interval(Duration::from_secs(1));
    let mut flags = world.flags();
    flags.push("--load-report-server".to_owned());
    flags.push(plane.listen_addr().to_string());
    flags.push("--load-report-all".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();

    let mut probe = lab.probe();
    for (address, name) in BACKENDS.iter().zip(["a", "b", "c"]) {
        probe.ask(&format!("serve-tcp {address}:8080 {name}"));
    }
    // The first agent routes all before the first connection.
    lab.adopt(&flags).stop();
    probe.ask(&format!("fire 1000 {}", world.addresses().join(",")));
    let begin = Instant::now();
    let agent = thread::scope(|scope| {
        let _stopped = Stopped(&world.stop);
        scope.spawn(|| world.change_kubernetes());
        scope.spawn(|| world.change_etcd());
        scope.spawn(|| world.change_files());
        fire(&lab, &world, &flags, &plane)
    });
    let counts = probe.counts("calm");
    let took = begin.elapsed().as_secs_f64();
    let all: usize = counts.iter().map(|it| it.1).sum();
    println!(
        "{all} connections in {took:.1} s, {:.0} a second; {:.0} endpoint changes a second: {counts:?}",
        all as f64 / took,
        world.changes.load(Ordering::Relaxed) as f64 / took
    );
    let names: Vec<_> = counts.iter().map(|it| it.0.as_str()).collect();
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
    drop(agent);
    world.runtime.block_on(plane.shutdown());
}
