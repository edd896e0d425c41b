//! `crowfly bench node` as a user runs it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::{Lab, leave_out};

const BINARY: &str = env!("CARGO_BIN_EXE_crowfly");

/// All three ways, at a few services, with every figure that the full run has.
#[test]
fn a_quick_benchmark_of_the_node_reports_every_figure_and_leaves_nothing() {
    let Some(_lab) = Lab::new() else { return };
    let bench = Command::new(BINARY)
        .args(["bench", "node", "--quick", "--json", "--services", "1,20"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = bench.id();
    let output = bench.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if !has("nft") {
        assert!(error.contains("this needs the program nft"), "{error}");
        return without_nft();
    }
    assert!(output.status.success(), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for workload in ["connects", "requests"] {
        let rows = report[workload].as_array().unwrap();
        let services: Vec<_> = rows.iter().map(|row| row["services"].as_u64()).collect();
        assert_eq!(services, [Some(1), Some(20)], "{report}");
        for way in ["direct", "ours", "nft"] {
            assert!(rows[1][way]["per_second"].as_f64() > Some(1.0), "{report}");
        }
    }
    assert!(report["stream"]["ours_to_direct"]["median"].as_f64() > Some(0.0));
    assert!(report["programming"]["change_p50_us"].as_f64() > Some(0.0));
    let reactions = report["reactions"].as_array().unwrap();
    let sources: Vec<_> = reactions.iter().map(|it| it["source"].as_str()).collect();
    let mut expected = vec![Some("file"), Some("xds")];
    expected.extend(has("etcd").then_some(Some("kvstore")));
    expected.push(Some("kubernetes"));
    assert_eq!(sources, expected, "{report}");
    for reaction in reactions {
        assert_eq!(reaction["failed"], 0, "{report}");
    }
    // Files settle for 100 ms.
    assert!(reactions[0]["median_ms"].as_f64() > Some(100.0), "{report}");
    // Never silent about a source that is missing.
    let left_out = report["left_out"].as_array().unwrap();
    assert_eq!(reactions.len() + left_out.len(), 4, "{report}");
    assert!(
        report["memory"]["maps"]["svc"].as_u64() > Some(0),
        "{report}"
    );
    let agents = report["memory"]["agents"].as_array().unwrap();
    assert_eq!(
        agents.len(),
        reactions.len(),
        "one for each source: {report}"
    );
    for agent in agents {
        assert!(agent["resident_mb"].as_f64() > Some(1.0), "{report}");
    }
    let goals = report["goals"].as_array().unwrap().len();
    assert_eq!(goals, 5 + agents.len(), "{report}");
    assert_eq!(left_by(process), [""; 0]);
}

/// Ctrl-C ends it in order. After SIGKILL, which nobody can react to, the next run cleans up, even if a namespace is
/// all that is left.
#[test]
fn a_benchmark_of_the_node_that_is_ended_leaves_nothing() {
    let Some(_lab) = Lab::new() else { return };
    if !has("nft") {
        return without_nft();
    }
    let mut killed = start();
    killed.kill().unwrap();
    killed.wait().unwrap();

    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let namespace = format!("crowfly-bench-{}-client", gone.id());
    let added = Command::new("ip")
        .args(["netns", "add", &namespace])
        .status();
    assert!(added.unwrap().success());

    let mut interrupted = start();
    assert_eq!(left_by(killed.id()), [""; 0]);
    assert_eq!(left_by(gone.id()), [""; 0]);
    assert_ne!(left_by(interrupted.id()), [""; 0]);
    let number = interrupted.id().to_string();
    let signalled = Command::new("kill").args(["-INT", &number]).status();
    assert!(signalled.unwrap().success());
    assert!(!interrupted.wait().unwrap().success());
    assert_eq!(left_by(interrupted.id()), [""; 0]);
}

#[test]
fn without_root_the_benchmark_of_the_node_says_what_is_missing() {
    let Some(_lab) = Lab::new() else { return };
    // Where others may read it.
    let binary = std::env::temp_dir().join(format!("crowfly-unprivileged-{}", std::process::id()));
    fs::copy(BINARY, &binary).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&binary)
        .args(["bench", "node", "--quick"])
        .output();
    fs::remove_file(&binary).unwrap();
    let error = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(error.contains("this needs root"), "{error}");
}

/// A benchmark that has made its namespaces.
fn start() -> Child {
    let mut bench = Command::new(BINARY)
        .args(["bench", "node", "--services", "1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(bench.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("programming 1000 services"), "{line}");
    // The pipe must stay open: what is printed later goes nowhere.
    thread::spawn(move || for _ in stdout.lines() {});
    bench
}

/// The namespaces, cgroups and folders of a process. Those of ended processes take a moment to go.
fn left_by(process: u32) -> Vec<String> {
    let name = format!("crowfly-bench-{process}");
    let cgroups = crowfly_node::check::default_cgroup().unwrap();
    let directories =
        [Path::new("/run/netns"), &cgroups, &std::env::temp_dir()].map(Path::to_owned);
    let begin = Instant::now();
    loop {
        let entries = directories
            .iter()
            .flat_map(|directory| fs::read_dir(directory).unwrap());
        let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        let left: Vec<_> = names.filter(|found| found.starts_with(&name)).collect();
        let is_running = Path::new("/proc").join(process.to_string()).exists();
        if left.is_empty() || is_running || begin.elapsed() > Duration::from_secs(5) {
            return left;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Leaves a test out: without nft there is nothing to compare with.
fn without_nft() {
    leave_out::<()>("the program nft (on Debian: nftables)");
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}
