//! The manifests and the Dockerfile, as far as they can be checked without a cluster.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};
use crowfly_cli::args::Cli;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn manifest(name: &str) -> Value {
    let text = fs::read_to_string(root().join("deploy/kubernetes").join(name)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// Reads a manifest as Kubernetes does, and refuses fields that Kubernetes does not know: those are
/// missing when it is written again.
fn typed<T: DeserializeOwned + Serialize>(manifest: &Value) -> T {
    let object: T = serde_json::from_value(manifest.clone()).unwrap();
    let written = serde_json::to_value(&object).unwrap();
    assert_eq!(&written, manifest);
    object
}

fn daemon_set() -> DaemonSet {
    typed(&manifest("daemonset.yaml"))
}

fn container(daemon_set: &DaemonSet) -> Container {
    let template = &daemon_set.spec.as_ref().unwrap().template;
    let containers = &template.spec.as_ref().unwrap().containers;
    assert_eq!(containers.len(), 1);
    containers[0].clone()
}

/// The manifests have the fields of Kubernetes and no others, and refer to one another.
#[test]
fn manifests_are_objects_of_kubernetes() {
    let namespace: Namespace = typed(&manifest("namespace.yaml"));
    let namespace = namespace.metadata.name;
    let rbac = manifest("rbac.yaml");
    let account: ServiceAccount = typed(&rbac["items"][0]);
    let role: ClusterRole = typed(&rbac["items"][1]);
    let binding: ClusterRoleBinding = typed(&rbac["items"][2]);
    let config: ConfigMap = typed(&manifest("configmap.yaml"));
    let daemon_set = daemon_set();
    for metadata in [&account.metadata, &config.metadata, &daemon_set.metadata] {
        assert_eq!(metadata.namespace, namespace);
    }
    assert_eq!(Some(&binding.role_ref.name), role.metadata.name.as_ref());
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(Some(&subject.name), account.metadata.name.as_ref());
    assert_eq!(subject.namespace, namespace);
    let pod = daemon_set.spec.as_ref().unwrap().template.spec.as_ref();
    assert_eq!(pod.unwrap().service_account_name, account.metadata.name);
    let from = container(&daemon_set).env_from.unwrap();
    let from = from[0].config_map_ref.as_ref().unwrap();
    assert_eq!(Some(&from.name), config.metadata.name.as_ref());

    let listed = manifest("kustomization.yaml");
    let listed = listed["resources"].as_array().unwrap().iter();
    let listed: BTreeSet<_> = listed
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    let files = fs::read_dir(root().join("deploy/kubernetes")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<_> = files.filter(|name| name != "kustomization.yaml").collect();
    assert_eq!(listed, files);
}

/// The agent reads services, endpoint slices and nodes, and changes nothing.
#[test]
fn the_agents_role_reads_three_kinds_and_writes_none() {
    let role: ClusterRole = typed(&manifest("rbac.yaml")["items"][1]);
    let mut resources = BTreeSet::new();
    for rule in role.rules.unwrap() {
        assert_eq!(rule.verbs, ["list", "watch"]);
        resources.extend(rule.resources.unwrap());
    }
    let expected = ["endpointslices", "nodes", "services"].map(str::to_owned);
    assert_eq!(resources, BTreeSet::from(expected));
}

/// Every flag and every variable in the manifests is one that the command has.
#[test]
fn arguments_and_variables_of_the_manifests_are_those_of_the_command() {
    let container = container(&daemon_set());
    let arguments = container.args.unwrap();
    let program = ["crowfly".to_owned()].into_iter();
    Cli::try_parse_from(program.chain(arguments)).unwrap();

    let mut command = Cli::command();
    command.build();
    let known = variables(command.find_subcommand("node").unwrap());
    let own = container
        .env
        .unwrap()
        .into_iter()
        .map(|variable| variable.name);
    let config: ConfigMap = typed(&manifest("configmap.yaml"));
    for variable in own.chain(config.data.unwrap().into_keys()) {
        assert!(known.contains(&variable), "{variable} is none of {known:?}");
    }
}

/// The agent is in the network of the node, where its probes ask. It sees the cgroups and the bpffs
/// of the node at the paths that it is told. It writes to the bpffs, and to the folder of its
/// socket.
#[test]
fn the_agent_sees_the_node_where_it_is_told_to() {
    let daemon_set = daemon_set();
    let spec = daemon_set.spec.as_ref().unwrap();
    let labels = spec.template.metadata.as_ref().unwrap().labels.as_ref();
    assert_eq!(spec.selector.match_labels.as_ref(), labels);
    let pod = spec.template.spec.as_ref().unwrap();
    assert_eq!(pod.host_network, Some(true));

    let container = container(&daemon_set);
    let arguments = container.args.unwrap();
    let told = |flag: &str| {
        let at = arguments.iter().position(|word| word == flag).unwrap();
        arguments[at + 1].clone()
    };
    let socket = "/run/crowfly/node.sock".to_owned();
    let mounts = container.volume_mounts.unwrap();
    let volumes = pod.volumes.as_ref().unwrap();
    for (path, on_the_node, is_written) in [
        (told("--cgroup"), Some("/sys/fs/cgroup"), false),
        (told("--pins"), Some("/sys/fs/bpf"), true),
        (socket, None, true),
    ] {
        let mount = mounts
            .iter()
            .find(|mount| Path::new(&path).starts_with(&mount.mount_path));
        let mount = mount.unwrap_or_else(|| panic!("{path} is not mounted"));
        assert_eq!(mount.read_only != Some(true), is_written, "{path}");
        let volume = volumes.iter().find(|volume| volume.name == mount.name);
        let host = volume.unwrap().host_path.as_ref();
        assert_eq!(host.map(|host| host.path.as_str()), on_the_node, "{path}");
    }
}

/// The probes ask where the agent listens, for pages that it has: `metrics.rs` of the tests against the
/// kernel asks for them. An agent that has heard no source is alive, and is not ready.
#[test]
fn the_probes_ask_the_port_that_the_agent_is_told() {
    let container = container(&daemon_set());
    let mut words = container.args.unwrap().into_iter();
    words.find(|word| word == "--metrics-listen").unwrap();
    let listen = words.next().unwrap();
    for (probe, path) in [
        (container.readiness_probe, "/readyz"),
        (container.liveness_probe, "/healthz"),
    ] {
        let asked = probe.unwrap().http_get.unwrap();
        let IntOrString::Int(port) = asked.port else {
            panic!("a port without a number");
        };
        assert_eq!(format!("{}:{port}", asked.host.unwrap()), listen);
        assert_eq!(asked.path.as_deref(), Some(path));
    }
}

fn variables(command: &Command) -> BTreeSet<String> {
    let names = command.get_arguments().filter_map(clap::Arg::get_env);
    names
        .map(|name| name.to_str().unwrap().to_owned())
        .collect()
}

/// The container has the rights that `crowfly node check` asks for, and no others.
#[test]
fn the_agent_is_given_the_rights_that_the_check_asks_for() {
    let security = container(&daemon_set()).security_context.unwrap();
    assert_eq!(security.privileged, None);
    assert_eq!(security.allow_privilege_escalation, Some(false));
    assert_eq!(security.read_only_root_filesystem, Some(true));
    let capabilities = security.capabilities.unwrap();
    assert_eq!(capabilities.drop.unwrap(), ["ALL"]);
    let added = capabilities.add.unwrap().into_iter();
    let added: BTreeSet<_> = added.map(|name| format!("CAP_{name}")).collect();
    let needed = crowfly_node::check::rights().map(str::to_owned).collect();
    assert_eq!(added, needed);
    // The manifest says what it does without.
    let text = fs::read_to_string(root().join("deploy/kubernetes/daemonset.yaml")).unwrap();
    for right in crowfly_node::check::socket_rights() {
        assert!(text.contains(right), "{right}");
    }
}

/// The image is built with a Rust that the command supports, from files that are in the context.
#[test]
fn the_dockerfile_builds_what_is_here() {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let rust = text
        .lines()
        .find_map(|line| line.strip_prefix("FROM rust:"))
        .unwrap();
    let needed = format!("{}-", env!("CARGO_PKG_RUST_VERSION"));
    assert!(rust.starts_with(&needed), "{rust} has not Rust {needed}");
    let install = text
        .lines()
        .find_map(|line| line.strip_prefix("RUN cargo install "));
    let (_, path) = install.unwrap().split_once("--path ").unwrap();
    let path = path.split(' ').next().unwrap();
    assert!(root().join(path).join("Cargo.toml").exists(), "{path}");
    assert!(root().join("Cargo.lock").exists(), "--locked needs it");
    let ignored = fs::read_to_string(root().join(".dockerignore")).unwrap();
    for needed in ["crates", "examples", "Cargo.toml", "Cargo.lock"] {
        assert!(!ignored.lines().any(|line| line == needed), "{needed}");
    }
}
