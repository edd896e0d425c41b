//! The sub-commands of `crowfly node`, run as a user runs them, because scripts depend on their output and exit
//! codes.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::lab::Lab;
use crate::web;

const SERVICES: &str = "\
services:
- name: web
  namespace: shop
  cluster_ips: [10.96.0.10]
  ports: [{ name: http, port: 80 }]
  endpoints:
  - { addresses: [10.244.1.5], ports: [{ name: http, port: 8080 }], weight: 3 }
  - { addresses: [10.244.1.6], ports: [{ name: http, port: 8080 }], ready: false }
";

/// `services` and `trace` say what is routed, and why a backend is out.
#[test]
fn the_agent_answers() {
    let Some(lab) = Lab::new() else { return };
    let (ok, error) = lab.crowfly(&["services"]);
    assert!(
        !ok && error.contains("no agent answers there; is `crowfly node` running?"),
        "{error}"
    );
    let _agent = lab.agent(SERVICES, &[]);
    let (ok, text) = lab.crowfly(&["services"]);
    assert!(ok);
    insta::assert_snapshot!(text, @r"
    node n1, zone a
    source file: synced, 1 services

    10.96.0.10:80 TCP  shop/web port http  from file
      -> 10.244.1.5:8080          weight 3     100.0 %  0 opened, 0 active, 0 failed
    ");
    let (ok, text) = lab.crowfly(&["trace", "10.96.0.10:80"]);
    assert!(ok);
    assert!(
        text.contains("x  10.244.1.6:8080          not ready"),
        "{text}"
    );
    let (ok, text) = lab.crowfly(&["trace", "[::ffff:10.96.0.10]:80"]);
    assert!(
        ok && text.contains("\n10.96.0.10:80 TCP  shop/web"),
        "{text}"
    );
    let (ok, text) = lab.crowfly(&["trace", "10.96.0.10:81"]);
    assert!(
        !ok && text.contains("its ClusterIP has no such port"),
        "{text}"
    );
    let (ok, json) = lab.crowfly(&["trace", "10.96.0.10:80", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(ok);
    assert_eq!(json[0]["left_out"][0]["reason"], "not ready");
    assert_eq!(json[0]["programmed"], true);

    // A second agent would fight with the first, and so would `clean`.
    let config = lab.config();
    let config = config.to_str().unwrap();
    let (ok, error) = lab.crowfly(&["--config", config]);
    assert!(
        !ok && error.contains("an agent answers there already"),
        "{error}"
    );
    let (ok, error) = lab.crowfly(&["clean"]);
    assert!(
        !ok && error.contains("an agent answers there already"),
        "{error}"
    );
    // Even if they ask elsewhere.
    let other = config.replace("node.yaml", "other.sock");
    for command in [
        &["--config", config, "--socket", &other][..],
        &["clean", "--socket", &other],
    ] {
        let (ok, error) = lab.crowfly(command);
        assert!(
            !ok && error.contains("another agent uses these pins"),
            "{error}"
        );
    }
}

/// `--dry-run` needs neither root nor a kernel that routes.
#[test]
fn a_dry_run_shows_what_would_be_programmed() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("node.yaml");
    let run = |text: &str, more: &[&str]| {
        fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_crowfly"));
        command.args(["node", "--dry-run", "--zone", "a", "--config"]);
        let output = command.arg(&config).args(more).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (ok, text) = run(SERVICES, &[]);
    assert!(ok, "{text}");
    insta::assert_snapshot!(text, @r"
    node (no name), zone a
    source file: synced, 1 services

    10.96.0.10:80 TCP  shop/web port http  from file
      -> 10.244.1.5:8080          weight 3     100.0 %  0 opened, 0 active, 0 failed
    ");
    let (ok, json) = run(SERVICES, &["--json"]);
    assert!(ok);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["frontends"][0]["service"], "shop/web");
    let (ok, error) = run("", &[]);
    assert!(
        !ok && error.contains("node.yaml: expected `services`, got an empty file"),
        "{error}"
    );
    let (ok, error) = run("services: [{}]", &[]);
    assert!(
        !ok && error.contains("node.yaml:1:12: services[0]: expected a field `name`"),
        "{error}"
    );
}

/// `check` finds this machine able, and names what is missing elsewhere.
#[test]
fn a_machine_is_checked() {
    let Some(lab) = Lab::new() else { return };
    let (ok, text) = lab.crowfly(&["check"]);
    assert!(ok, "{text}");
    for name in ["kernel", "cgroup", "bpffs", "privileges", "programs"] {
        assert!(text.contains(&format!("ok   {name}")), "{text}");
    }
    assert!(!lab.pins().exists(), "the trial left nothing");
    let (ok, json) = lab.crowfly(&["check", "--json", "--pins", "/tmp/crowfly"]);
    assert!(!ok);
    let findings: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(findings[2]["name"], "bpffs");
    assert_eq!(findings[2]["ok"], false);
    assert!(
        findings[2]["fix"]
            .as_str()
            .unwrap()
            .starts_with("mount -t bpf"),
        "{json}"
    );
}

/// `clean` ends routing and removes every trace, also the directory that the agent made for its socket.
#[test]
fn clean_removes_every_trace() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 one");
    lab.agent(&web("10.96.0.10", "", &["127.0.0.1:8080"]), &[])
        .stop();
    assert_eq!(
        probe.ask("tcp 10.96.0.10:80 1"),
        "one=1",
        "routed without an agent"
    );
    let (ok, text) = lab.crowfly(&["clean"]);
    assert!(
        ok && text.contains(" pins removed") && !text.contains(": 0 pins"),
        "{text}"
    );
    let (socket, pins) = (lab.socket(), lab.pins());
    let run = socket.parent().unwrap();
    assert!(!pins.exists() && !run.exists());
    assert_eq!(probe.ask("tcp 10.96.0.10:80 1"), "ENETUNREACH=1");
    let (ok, json) = lab.crowfly(&["clean", "--json"]);
    assert!(ok && json.trim() == r#"{"removed":0}"#, "{json}");

    // A killed agent leaves its socket.
    lab.adopt(&[]).kill();
    assert!(socket.exists());
    let (ok, text) = lab.crowfly(&["clean"]);
    assert!(ok && !pins.exists() && !run.exists(), "{text}");

    // A file that no agent made stays, and its directory.
    fs::create_dir(run).unwrap();
    fs::write(&socket, "a note").unwrap();
    let (ok, text) = lab.crowfly(&["clean"]);
    assert!(ok && fs::read(&socket).unwrap() == b"a note", "{text}");
}

/// A bad file at the start is refused with file, line and field, and what a former agent left is not
/// touched.
#[test]
fn a_bad_file_at_the_start_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 one");
    lab.agent(&web("10.96.0.10", "", &["127.0.0.1:8080"]), &[])
        .kill();
    fs::write(
        lab.config(),
        "services:\n- name: web\n  cluster_ip: 10.96.0.10\n",
    )
    .unwrap();
    let config = lab.config();
    let (ok, error) = lab.crowfly(&["--config", config.to_str().unwrap()]);
    assert!(
        !ok && error.contains("node.yaml:3:3: services[0].cluster_ip: unknown field"),
        "{error}"
    );
    assert_eq!(probe.ask("tcp 10.96.0.10:80 1"), "one=1");
}
