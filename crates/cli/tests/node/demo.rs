//! `crowfly demo --node` as a user runs it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::Lab;

const BINARY: &str = env!("CARGO_BIN_EXE_crowfly");

/// N-58, N-71: over xDS, a backend is killed and returns, weights of zones change, and the agent and the
/// control plane are killed and return. Only connections to the killed backend fail, before it is taken
/// out. The loads that the control planes were told are all connections, and nothing is left on the machine.
#[test]
fn the_demo_of_the_node_loses_no_connection_that_had_a_healthy_backend() {
    let Some(_lab) = Lab::new() else { return };
    let demo = Command::new(BINARY)
        .args(["demo", "--node", "--duration", "10s", "--plain", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = demo.id();
    let output = demo.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{error}");
    for expected in [
        "a2: SIGKILL; the control plane lists it still",
        "a2: started again, and in the maps after",
        "weights: zone a 1, zone b 9; in the maps after",
        "90 % were expected, give or take",
        "the agent: SIGKILL; programs and maps are pinned, so connections are routed on",
        "the control plane: SIGKILL; the agent keeps what it was told",
        "the control plane: started again, with equal weights; in the maps after",
        "1 client reports loads, every 1s",
        "no connection failed but on the backend that was killed, while it was listed",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
    }
    let report: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(report["wrong"], serde_json::json!([]), "{report}");
    for counted in ["ok_without_agent", "ok_without_control_plane", "reported"] {
        assert!(report[counted].as_u64() > Some(0), "{report}");
    }
    assert_eq!(report["failed"], report["failed_on_killed_backend"]);
    assert!(
        report["failed_on_killed_backend"].as_u64() > Some(0),
        "{report}"
    );
    assert_eq!(
        report["by_backend"].as_object().unwrap().len(),
        4,
        "{report}"
    );
    assert_eq!(left_by(process), [""; 0]);
}

/// Ctrl-C reaches all processes of the demo, and an impatient user does it many times. The demo removes what it made,
/// and says so.
#[test]
fn a_demo_of_the_node_that_is_interrupted_leaves_nothing() {
    let Some(_lab) = Lab::new() else { return };
    let mut demo = Command::new(BINARY)
        .args(["demo", "--node", "--plain"])
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let is_on_stage = |line: &String| line.contains("look inside");
    lines.find(|line| line.as_ref().is_ok_and(is_on_stage));
    let group = format!("-{}", demo.id());
    let begin = Instant::now();
    while demo.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        let mut interrupt = Command::new("kill");
        interrupt.args(["-INT", "--", &group]).stderr(Stdio::null());
        interrupt.status().unwrap();
    }
    let last = lines.last().unwrap().unwrap();
    assert_eq!(
        last,
        "ended early; everything that the demo made is removed"
    );
    assert_eq!(left_by(demo.id()), [""; 0]);
}

/// The namespaces, cgroups and folders of a demo that has ended.
fn left_by(process: u32) -> Vec<String> {
    let name = format!("crowfly-demo-{process}");
    let cgroups = crowfly_node::check::default_cgroup().unwrap();
    let directories = [Path::new("/run/netns"), &cgroups, &std::env::temp_dir()];
    let entries = directories.map(|directory| fs::read_dir(directory).unwrap());
    let entries = entries.into_iter().flatten();
    let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter(|found| found.starts_with(&name)).collect()
}
