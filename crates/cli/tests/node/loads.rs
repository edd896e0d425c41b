//! Load reports: what the kernel counts arrives at a server, each connection once.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData, MapInfo};
use crowfly_node::maps::layout;
use crowfly_node::maps::reports::MAX_LABEL;
use serde_json::Value;

use crate::control::Control;
use crate::lab::{Lab, counters};
use crate::lrs::{Lrs, Told};

const SECOND: Duration = Duration::from_secs(1);

/// A service with TCP backends, each in a zone.
pub(crate) fn zoned(name: &str, cluster_ip: &str, backends: &[(&str, &str)]) -> String {
    let mut text =
        format!("- name: {name}\n  cluster_ips: [{cluster_ip}]\n  ports: [{{ port: 80 }}]\n");
    text.push_str(match backends {
        [] => "  endpoints: []\n",
        _ => "  endpoints:\n",
    });
    for (address, zone) in backends {
        let (address, port) = address.rsplit_once(':').unwrap();
        text.push_str(&format!(
            "  - {{ addresses: [\"{address}\"], ports: [{{ port: {port} }}], zone: {zone} }}\n"
        ));
    }
    text
}

fn told(opened: u64, failed: u64, closed: u64, active: u64) -> Told {
    Told {
        opened,
        failed,
        closed,
        active,
    }
}

const A: &str = "127.0.0.1:8080";
const B: &str = "127.0.0.2:8080";

/// N-70: opened, failed and open connections by locality, as the truth has it.
#[test]
fn reports_equal_the_truth_by_locality() {
    let Some(lab) = Lab::new() else { return };
    let lrs = Lrs::start();
    lrs.ask(SECOND, None);
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    let services = format!(
        "services:\n{}{}",
        zoned("web", "10.96.0.10", &[(A, "a"), (B, "b")]),
        zoned("silent", "10.96.0.11", &[(A, "a")])
    );
    let server = lrs.address.to_string();
    let flags = ["--load-report-server", &server, "--load-report-all"];
    let _agent = lab.agent(&services, &flags);
    let counts: BTreeMap<_, _> = probe.counts("tcp 10.96.0.10:80 200").into_iter().collect();
    // Nobody listens at the second backend.
    let (good, bad) = (counts["a"] as u64, counts["ECONNREFUSED"] as u64);
    assert_eq!(good + bad, 200);
    let row = |zone: &str| ("default/web:80".to_owned(), zone.to_owned());
    let expected = |active, closed| {
        let good = told(good + active, 0, good + closed, active - closed);
        BTreeMap::from([(row("a"), good), (row("b"), told(bad, bad, 0, 0))])
    };
    lrs.wait(|lrs| lrs.told() == expected(0, 0));
    assert_eq!(lrs.nodes(), ["n1"]);

    probe.ask("hold 127.0.0.1:8080 3");
    for _ in 0..50 {
        // Until five connections went to the backend that works.
        if probe.ask("hold 10.96.0.10:80 1") == "ok" {
            break;
        }
    }
    lrs.wait(|lrs| lrs.sum("default/web:80").active == 1);
    probe.ask("let-go 1");
    lrs.wait(|lrs| {
        let sum = lrs.sum("default/web:80");
        sum.active == 0 && sum.opened == sum.failed + sum.closed
    });
}

/// N-71: reports of an agent that is killed and restarted again and again have every connection once, also
/// those of a service that went while it was down, and while nobody took reports.
#[test]
fn a_killed_agent_repeats_and_loses_no_count() {
    let Some(lab) = Lab::new() else { return };
    let lrs = Lrs::start();
    lrs.ask(SECOND, None);
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    probe.ask(&format!("serve-tcp {B} b"));
    let web = zoned("web", "10.96.0.10", &[(A, "a"), (B, "b")]);
    let old = zoned("old", "10.96.0.11", &[(A, "a")]);
    let both = format!("services:\n{web}{old}");
    let server = lrs.address.to_string();
    let flags = ["--load-report-server", &server, "--load-report-all"];
    let mut agent = lab.agent(&both, &flags);
    probe.ask("storm 10.96.0.10:80");
    for _ in 0..3 {
        // Right after a report, so that none is on its way.
        lrs.wait_for_report();
        agent.kill();
        agent = lab.agent(&both, &flags);
    }
    lrs.wait_for_report();
    lrs.be_silent();
    lrs.break_streams();
    assert_eq!(probe.ask("tcp 10.96.0.11:80 7"), "a=7");
    agent.kill();
    assert_eq!(probe.ask("tcp 10.96.0.11:80 5"), "a=5");
    let agent = lab.agent(&format!("services:\n{web}"), &flags);
    lrs.ask(SECOND, None);
    let truth: u64 = probe.counts("calm").iter().map(|it| it.1 as u64).sum();
    lrs.wait(|lrs| lrs.sum("default/web:80") == told(truth, 0, truth, 0));
    lrs.wait(|lrs| lrs.sum("default/old:80") == told(12, 0, 12, 0));
    agent.wait(|view| counters(&view.frontends[0]) == (truth, 0, 0));
    // Nothing more is told by a report after the last one.
    probe.ask("tcp 10.96.0.10:80 1");
    lrs.wait(|lrs| lrs.sum("default/web:80") == told(truth + 1, 0, truth + 1, 0));
}

/// N-71: a label that is not in the map, as one that there was no room for, is lost with its agent. The connections that
/// were not reported until then are reported by the next agent, because the service is still there. There is room for the
/// label of each pair.
#[test]
fn connections_under_a_lost_label_are_told_after_a_restart() {
    let Some(lab) = Lab::new() else { return };
    let lrs = Lrs::start();
    lrs.ask(SECOND, None);
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    let one = zoned("one", "10.96.0.10", &[(A, "a")]);
    let other = zoned("other", "10.96.0.11", &[(A, "a")]);
    let services = format!("services:\n{one}{other}");
    let server = lrs.address.to_string();
    let flags = ["--load-report-server", &server, "--load-report-all"];
    let agent = lab.agent(&services, &flags);
    for service in ["10.96.0.10:80", "10.96.0.11:80"] {
        assert_eq!(probe.ask(&format!("tcp {service} 3")), "a=3");
    }
    let both = |lrs: &Lrs| ["default/one:80", "default/other:80"].map(|name| lrs.sum(name));
    lrs.wait(|lrs| both(lrs) == [told(3, 0, 3, 0); 2]);
    // What was told is stored before it is sent, and is not taken back.
    lrs.wait_for_report();
    agent.kill();

    let room = |map| {
        MapInfo::from_pin(lab.pins().join(map))
            .unwrap()
            .max_entries()
    };
    assert_eq!(room("v2/labels"), room("v2/reported"), "one for each pair");
    let labels = MapData::from_pin(lab.pins().join("v2/labels")).unwrap();
    let mut labels: HashMap<_, u32, [u8; MAX_LABEL]> = Map::HashMap(labels).try_into().unwrap();
    let mut all = labels.iter().map(Result::unwrap);
    let (lost, _) = all
        .find(|(_, text)| text.starts_with(b"default/other:80\0"))
        .unwrap();
    labels.remove(&lost).unwrap();
    for service in ["10.96.0.10:80", "10.96.0.11:80"] {
        assert_eq!(probe.ask(&format!("tcp {service} 5")), "a=5");
    }
    let _agent = lab.agent(&services, &flags);
    lrs.wait(|lrs| both(lrs) == [told(8, 0, 8, 0); 2]);
    lrs.wait_for_report();
    assert_eq!(both(&lrs), [told(8, 0, 8, 0); 2]);
}

type ReportedMap = HashMap<MapData, [u8; 8], [u8; 32]>;

/// The memory of what was reported, which an agent writes before it sends a report.
fn memory(lab: &Lab) -> ReportedMap {
    let map = MapData::from_pin(lab.pins().join("v2/reported")).unwrap();
    Map::HashMap(map).try_into().unwrap()
}

/// The sum of what it has.
fn stored(memory: &ReportedMap) -> Told {
    let mut sum = Told::default();
    for entry in memory.iter() {
        let stored = layout::read_reported(&entry.unwrap().1);
        sum.opened += stored.opened;
        sum.failed += stored.failed;
        sum.closed += stored.closed;
    }
    sum
}

/// Waits without a pause, to lose no time when it happens.
fn spin_until(mut has_happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !has_happened() {
        assert!(begin.elapsed() < 30 * SECOND, "it does not happen");
        thread::yield_now();
    }
}

/// N-71: an agent is killed when it begins to store a report, when the report arrives, and at any moment. No connection is
/// ever reported twice. A kill loses what was stored since the last report that arrived, and nothing else.
#[test]
fn an_agent_that_is_killed_at_any_moment_tells_nothing_twice() {
    const SERVICES: usize = 40;
    let Some(lab) = Lab::new() else { return };
    let lrs = Lrs::start();
    lrs.ask(SECOND, None);
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    probe.ask(&format!("serve-tcp {B} b"));
    // A report is stored in many steps, one for each pair of a service and a backend.
    let services = (0..SERVICES).map(|number| {
        let (name, ip) = (format!("s{number}"), format!("10.96.1.{number}"));
        zoned(&name, &ip, &[(A, "a"), (B, "b")])
    });
    let services = format!("services:\n{}", services.collect::<String>());
    let server = lrs.address.to_string();
    let flags = ["--load-report-server", &server, "--load-report-all"];
    let mut agent = lab.agent(&services, &flags);
    let addresses = (0..SERVICES).map(|number| format!("10.96.1.{number}:80"));
    let addresses: Vec<_> = addresses.collect();
    probe.ask(&format!("fire 500 {}", addresses.join(",")));

    let memory = memory(&lab);
    let mut random = fastrand::Rng::with_seed(22);
    let mut lost = Told::default();
    for round in 0..9 {
        // What is stored now has arrived when one more report has.
        let arrived = stored(&memory);
        lrs.wait_for_report();
        match round % 3 {
            0 => {
                let pair = memory.keys().next().unwrap().unwrap();
                let before = memory.get(&pair, 0).unwrap();
                spin_until(|| memory.get(&pair, 0).unwrap() != before);
            }
            1 => {
                let before = lrs.reports();
                spin_until(|| lrs.reports() > before);
            }
            _ => thread::sleep(SECOND.mul_f64(random.f64() * 1.2)),
        }
        agent.kill();
        lrs.wait_for_ends();
        let reported = lrs.all();
        let now = stored(&memory).less(&reported);
        println!("reported are {reported:?}; lost are {now:?}, of them before {lost:?}");
        assert!(
            reported.opened + lost.opened >= arrived.opened,
            "{arrived:?}"
        );
        // A loss is never made up for by counts that are told twice.
        now.less(&lost);
        lost = now;
        agent = lab.agent(&services, &flags);
    }
    let truth: u64 = probe.counts("calm").iter().map(|it| it.1 as u64).sum();
    let expected = told(truth, 0, truth, 0).less(&lost);
    lrs.wait(|lrs| lrs.all() == expected);
}

/// N-72, N-73: the server asks for other clusters and another interval, and breaks streams: what is reported
/// is what was asked for, as often as was asked for, and nothing of it is lost.
#[test]
fn the_server_decides_and_its_streams_break() {
    const WEB: &str = "default/web:80";
    const OTHER: &str = "default/other:80";
    const WEB_IP: &str = "10.96.0.10:80";
    const OTHER_IP: &str = "10.96.0.11:80";
    let Some(lab) = Lab::new() else { return };
    let lrs = Lrs::start();
    lrs.ask(SECOND, Some(&[WEB]));
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    let services = format!(
        "services:\n{}{}",
        zoned("web", "10.96.0.10", &[(A, "a")]),
        zoned("other", "10.96.0.11", &[(A, "a")])
    );
    let server = lrs.address.to_string();
    let flags = ["--load-report-server", &server, "--load-report-all"];
    let agent = lab.agent(&services, &flags);
    // An open connection is in each report.
    for (service, visits) in [(OTHER_IP, 3), (WEB_IP, 4)] {
        probe.ask(&format!("tcp {service} {visits}"));
        probe.ask(&format!("hold {service} 1"));
    }
    agent.wait(|view| {
        let mut sums: Vec<_> = view.frontends.iter().map(counters).collect();
        sums.sort_unstable();
        sums == [(4, 1, 0), (5, 1, 0)]
    });
    lrs.wait(|lrs| lrs.sum(WEB) == told(5, 0, 4, 1));
    // All that was counted until now is taken by the second report at the latest.
    lrs.wait_for_report();
    lrs.wait_for_report();
    assert_eq!(lrs.sum(OTHER), Told::default(), "not asked for");

    // All clusters, less often. A cluster that is asked for later starts clean.
    let before = lrs.reports();
    lrs.ask(2 * SECOND, None);
    lrs.wait(|lrs| lrs.sum(OTHER).active == 1);
    let first = lrs.intervals(OTHER, before).len();
    assert_eq!(
        lrs.sum(OTHER),
        told(0, 0, 0, 1),
        "those of before are not told"
    );
    probe.ask(&format!("tcp {OTHER_IP} 2"));
    lrs.wait(|lrs| lrs.sum(OTHER) == told(2, 0, 2, 1));
    lrs.wait_for_report();
    assert_eq!(lrs.sum(OTHER), told(2, 0, 2, 1));
    let intervals = lrs.intervals(OTHER, before);
    let others = intervals.iter().skip(first);
    assert!(others.clone().count() >= 2, "{intervals:?}");
    assert!(others.clone().all(|it| *it >= 2 * SECOND), "{intervals:?}");

    // More often again: the report is not one of an hour later.
    lrs.ask(3600 * SECOND, None);
    let begin = Instant::now();
    while !agent.log().contains("interval=3600s") {
        assert!(begin.elapsed() < 20 * SECOND, "{}", agent.log());
        thread::sleep(Duration::from_millis(10));
    }
    lrs.ask(SECOND, None);
    lrs.wait_for_report();

    probe.ask(&format!("storm {WEB_IP}"));
    for _ in 0..4 {
        lrs.wait_for_report();
        lrs.break_streams();
    }
    let truth: u64 = probe.counts("calm").iter().map(|it| it.1 as u64).sum();
    lrs.wait(|lrs| lrs.sum(WEB) == told(truth + 5, 0, truth + 4, 1));
}

/// N-70, N-72: the loop of the CFP: the control plane serves a service and asks for its load in the cluster, the
/// agent routes it, and `crowfly loads` shows the connections. Nothing else says that they are to be reported.
#[test]
fn a_cluster_that_asks_for_its_load_gets_it() {
    let Some(lab) = Lab::new() else { return };
    let service = |name: &str, address: &str, more: &str| {
        format!(
            "- name: shop/{name}\n  cluster_ip: {address}\n  ports: [{{ port: 80, target_port: 8080 }}]\n{more}  \
             endpoints: [{{ address: '{A}' }}]\n"
        )
    };
    let web = service("web", "10.96.0.10", "  load_reports: true\n");
    let quiet = service("quiet", "10.96.0.11", "");
    let control = Control::start(&lab, &format!("services:\n{quiet}"));
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    let agent = lab.agent("services: []\n", &["--xds-server", &control.address]);
    assert_eq!(probe.ask("tcp 10.96.0.11:80 3"), "a=3");
    control.serve(&format!("services:\n{quiet}{web}"));
    agent.wait(|view| view.frontends.len() == 2 && view.frontends.iter().all(|it| it.programmed));
    assert_eq!(probe.ask("tcp 10.96.0.10:80 7"), "a=7");
    let begin = Instant::now();
    loop {
        let output = Command::new(env!("CARGO_BIN_EXE_crowfly"))
            .args(["loads", "--json", "--admin", &control.admin])
            .output()
            .unwrap();
        let loads: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = loads["rows"].as_array().unwrap();
        let rows = rows.iter().map(|row| {
            let connections = &row["connections"]["opened"];
            (row["cluster"].as_str().unwrap(), connections.as_u64())
        });
        let rows: Vec<_> = rows.collect();
        if rows == [("cluster_ip:shop/web:80/TCP", Some(7))] {
            break;
        }
        assert!(begin.elapsed() < 20 * SECOND, "{loads:#}\n{}", agent.log());
        thread::sleep(Duration::from_millis(50));
    }
}
