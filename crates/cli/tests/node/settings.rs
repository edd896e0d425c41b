//! Settings by flag, environment and file. A dry run shows them, and needs neither root nor a kernel that
//! routes.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

const SERVICES: &str = "services: []\n";

/// A flag counts more than a variable of the environment, and that more than the file.
#[test]
fn a_flag_counts_more_than_the_environment_and_that_more_than_the_file() {
    let try_it = Try::new(&format!(
        "node: {{ name: of-file, zone: of-file }}\n{SERVICES}"
    ));
    let place = |environment: &[(&str, &str)], flags: &[&str]| {
        let json = try_it.json(environment, flags);
        let text = |field: &str| json[field].as_str().unwrap().to_owned();
        (text("node"), text("zone"))
    };
    let of = |node: &str, zone: &str| (node.to_owned(), zone.to_owned());
    assert_eq!(place(&[], &[]), of("of-file", "of-file"));
    let environment = [("CROWFLY_NODE_ZONE", "of-environment")];
    assert_eq!(place(&environment, &[]), of("of-file", "of-environment"));
    assert_eq!(
        place(&environment, &["--zone", "of-flag"]),
        of("of-file", "of-flag")
    );
}

/// A dry run, its form and its patience may come from the environment, too. Its form needs a dry run, as by flag.
#[test]
fn a_dry_run_comes_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("node.yaml");
    fs::write(&config, "services: []\n").unwrap();
    let run = |environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crowfly"));
        command.args(["node", "--config"]).arg(&config);
        // If it is no dry run by mistake, it must not get far.
        command.env("CROWFLY_NODE_CGROUP", folder.path().join("none"));
        command.env("CROWFLY_NODE_SOCKET", folder.path().join("socket"));
        let output = command.envs(environment.iter().copied()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let dry_run = ("CROWFLY_NODE_DRY_RUN", "true");
    let (ok, text) = run(&[dry_run, ("CROWFLY_NODE_JSON", "false")]);
    assert!(ok && text.contains("no frontends"), "{text}");
    let (ok, text) = run(&[dry_run, ("CROWFLY_NODE_JSON", "true")]);
    assert!(ok && text.starts_with('{'), "{text}");
    let (ok, text) = run(&[dry_run, ("CROWFLY_NODE_TIMEOUT", "soon")]);
    assert!(!ok && text.contains("--timeout"), "{text}");
    let (ok, text) = run(&[("CROWFLY_NODE_JSON", "true")]);
    assert!(!ok && text.contains("--dry-run"), "{text}");
}

/// A wrong setting is refused with file, line and field; and so is one that is wrong in a flag.
#[test]
fn a_wrong_setting_is_named() {
    for (config, flags, expected) in [
        (
            "node:\n  nam: a\nservices: []\n",
            &[][..],
            "node.yaml:2:3: node.nam: unknown field, expected one of name, zone, pod_cidrs",
        ),
        (
            "services: []\nsources: [xds, etcd]\n",
            &[],
            "node.yaml:2:16: sources[1]: expected one of kubernetes, kvstore, xds, file, got \"etcd\"",
        ),
        (
            "services: []\nmachine: { max_backends: 0 }\n",
            &[],
            "node.yaml:2:26: machine.max_backends: expected 1 to 16777216, got 0",
        ),
        (
            "services: []\nstart_timeout: soon\n",
            &[],
            "node.yaml:2:16: start_timeout: ",
        ),
        (
            "services: []\nnodes: {}\n",
            &[],
            "node.yaml:2:1: nodes: unknown field, expected one of services, node, ",
        ),
        (
            "services: []\nnode: {}\n---\nnode: {}\n",
            &[],
            "node.yaml:4:7: node: it is given twice",
        ),
        (
            "node: { zone: a }\n",
            &[],
            "no source of services: give a file with `services` by --config, or ",
        ),
        (
            "services: []\nnode: { pod_cidrs: [10.0.0.0/33] }\n",
            &[],
            "node.yaml:2:21: node.pod_cidrs[0]: expected a range of addresses such as 10.244.1.0/24",
        ),
    ] {
        refused(config, flags, expected);
    }
}

/// A wrong setting of a source is refused with the source and the setting.
#[test]
fn a_wrong_setting_of_a_source_is_named() {
    for (config, flags, expected) in [
        (
            "services: []\nkvstore: { endpoints: [ftp://etcd] }\n",
            &[][..],
            "kvstore: endpoint \"ftp://etcd\": expected http://HOST:PORT",
        ),
        (
            SERVICES,
            &["--kvstore-own-cluster", "a"],
            "kvstore: endpoints: expected at least one",
        ),
        (
            "services: []\nxds: { server: \"a:1\", cert: a.pem }\n",
            &[],
            "xds: cert is given, expected key with it",
        ),
        (
            "kubernetes: { kubeconfig: /nonexistent/config }\n",
            &[],
            "kubernetes: /nonexistent/config: ",
        ),
        (
            SERVICES,
            &["--xds-delta"],
            "xds: expected `server` or `bootstrap`",
        ),
        (
            SERVICES,
            &["--sources", "file,file"],
            "sources: expected each source once, got file twice",
        ),
        (
            SERVICES,
            &["--sources", "kubernetes"],
            "sources: file is a source that is in use, and the order lacks it",
        ),
        (SERVICES, &["--max-frontends", "x"], "expected a number"),
        (SERVICES, &["--timeout", "0s"], "expected more than zero"),
    ] {
        refused(config, flags, expected);
    }
}

/// A setting that would do nothing without another one is refused, and the other one is named.
#[test]
fn a_setting_that_would_do_nothing_is_refused() {
    let pods = "node: pod_cidrs are given, expected name (--node-name) with them";
    let loads = "load_reports: all is given, expected a server for the reports with it: --load-report-server, ";
    for (config, flags, expected) in [
        (SERVICES, &["--pod-cidrs", "10.244.1.0/24"][..], pods),
        (
            "services: []\nnode: { pod_cidrs: [10.244.1.0/24] }\n",
            &[],
            pods,
        ),
        (SERVICES, &["--load-report-all"], loads),
        ("services: []\nload_reports: { all: true }\n", &[], loads),
    ] {
        refused(config, flags, expected);
    }
    for flags in [
        &["--pod-cidrs", "10.244.1.0/24", "--node-name", "a"][..],
        &["--load-report-all", "--load-report-server", "127.0.0.1:1"],
        &["--load-report-all=false"],
    ] {
        Try::new(SERVICES).json(&[], flags);
    }
    // The server of the xDS source may take reports. It is not heard, and that alone is wrong here.
    let flags = [
        "--load-report-all",
        "--xds-server",
        "127.0.0.1:1",
        "--timeout",
        "1ms",
    ];
    refused(SERVICES, &flags, "there was no listing of xds");
}

fn refused(config: &str, flags: &[&str], expected: &str) {
    let (ok, text) = Try::new(config).run(&[], flags);
    assert!(!ok && text.contains(expected), "{config}\n{text}");
}

/// All that is wrong is named at once.
#[test]
fn all_wrong_settings_are_named_at_once() {
    let (ok, text) = Try::new("node: 7\nsources: x\nmachine: { pin: a }\n").run(&[], &[]);
    assert!(!ok);
    for field in ["1:7: node:", "2:10: sources:", "3:12: machine.pin:"] {
        assert!(text.contains(field), "{text}");
    }
}

/// N-58: a dry run names the sources that cannot be heard, and shows what the others have.
#[test]
fn a_dry_run_names_silent_sources() {
    // A port that nobody listens on, because it is bound and not listened on.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    let closed = socket
        .local_addr()
        .unwrap()
        .as_socket()
        .unwrap()
        .to_string();
    let try_it = Try::new(&format!("xds: {{ server: \"{closed}\" }}\n{SERVICES}"));
    let endpoint = format!("http://{closed}");
    let flags = ["--timeout", "300ms", "--kvstore-endpoints", &endpoint];
    let (ok, text) = try_it.run(&[], &flags);
    assert!(!ok);
    assert!(text.contains("source file: synced, 0 services"), "{text}");
    let silent = text.lines().last().unwrap();
    for expected in ["within 300ms there was no listing of kvstore (", ", xds ("] {
        assert!(silent.contains(expected), "{text}");
    }
}

/// A configuration file, and dry runs with it.
struct Try {
    folder: TempDir,
}

impl Try {
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("node.yaml"), config).unwrap();
        Self { folder }
    }

    fn run(&self, environment: &[(&str, &str)], flags: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crowfly"));
        command.args(["node", "--dry-run", "--config"]);
        command.arg(self.folder.path().join("node.yaml"));
        command.args(flags).envs(environment.iter().copied());
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn json(&self, environment: &[(&str, &str)], flags: &[&str]) -> Value {
        let (ok, text) = self.run(environment, &[flags, &["--json"]].concat());
        assert!(ok, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}
