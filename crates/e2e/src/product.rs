//! Crowfly's own processes, started as a user starts them.
//!
//! The programs are processes and not tasks of the test, because only a process can be killed.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::Process;

/// The `crowfly` binary to test.
#[derive(Clone, Copy, Debug)]
pub struct Crowfly {
    /// Path of the binary.
    pub program: &'static str,
}

impl Crowfly {
    /// Starts `crowfly backend`, which names itself `name` in its answers.
    pub fn backend(self, name: &str) -> Backend {
        self.backend_on("127.0.0.1:0", name)
    }

    /// Starts `crowfly backend` on an address, such as that of a backend that was killed.
    pub fn backend_on(self, listen: &str, name: &str) -> Backend {
        self.backend_with(listen, name, &[])
    }

    /// Starts `crowfly backend` with more flags, such as `--delay`.
    pub fn backend_with(self, listen: &str, name: &str, flags: &[&str]) -> Backend {
        let arguments = ["backend", "--listen", listen, "--name", name];
        let process = self.start(&[&arguments, flags].concat());
        let address = process.wait_for("its address", |line| address(line, "listening on "));
        Backend {
            name: name.to_owned(),
            address,
            process,
        }
    }

    /// Starts `crowfly control` on a file with `config` in it.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn control(self, config: &Config) -> Control {
        self.control_on("127.0.0.1:0", config)
    }

    /// Starts `crowfly control` on an address, such as that of a control plane that was killed.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn control_on(self, listen: &str, config: &Config) -> Control {
        self.control_with(listen, &config.to_yaml(), &[])
    }

    /// Starts a control plane that serves what gRPC clients refuse, too, so that tests can see them refuse it.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn control_forced(self, config: &Config) -> Control {
        self.control_with("127.0.0.1:0", &config.to_yaml(), &["--force"])
    }

    /// Starts a control plane on a file with this text.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn control_of(self, yaml: &str) -> Control {
        self.control_with("127.0.0.1:0", yaml, &[])
    }

    /// Starts a control plane on a file with this text, which asks clients for a load report per
    /// `interval`, such as `1s`.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn control_reporting(self, yaml: &str, interval: &str) -> Control {
        self.control_with("127.0.0.1:0", yaml, &["--load-report-interval", interval])
    }

    /// Starts a control plane on an address and a file with this text, with more flags.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn control_with(self, listen: &str, yaml: &str, flags: &[&str]) -> Control {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = dir.path().join("config.yaml");
        fs::write(&file, yaml).expect("the configuration");
        let file = file.to_str().expect("a path in UTF-8");
        let arguments = ["control", "--config", file, "--listen", listen];
        let admin = ["--admin", "127.0.0.1:0"];
        let process = self.start(&[&arguments, &admin[..], flags].concat());
        let listen = process.wait_for("its address", |line| address(line, "listening on "));
        let admin = process.wait_for("its pages", |line| address(line, "admin on http://"));
        Control {
            process,
            address: listen,
            admin,
            dir,
        }
    }

    /// Starts a command that ends with this process, however that ends.
    pub fn start(self, arguments: &[&str]) -> Process {
        let mut command = Command::new(self.program);
        command.args(arguments).arg("--exit-with-parent");
        Process::start(format!("crowfly {}", arguments[0]), command)
    }
}

/// A running `crowfly backend`.
pub struct Backend {
    /// The name in its answers.
    pub name: String,
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The process.
    pub process: Process,
}

/// A running `crowfly control`.
pub struct Control {
    /// The process.
    pub process: Process,
    /// The address on which it serves ADS.
    pub address: SocketAddr,
    /// The address of its admin pages.
    pub admin: SocketAddr,
    dir: TempDir,
}

impl Control {
    /// Replaces the configuration as careful programs do: by a rename, so that
    /// no reader sees half a file.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn configure(&self, config: &Config) {
        self.configure_with(&config.to_yaml());
    }

    /// Replaces the configuration by a file with this text.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn configure_with(&self, yaml: &str) {
        let new = self.dir.path().join("config.yaml.new");
        fs::write(&new, yaml).expect("the configuration");
        fs::rename(new, self.dir.path().join("config.yaml")).expect("the configuration");
    }
}

/// The configuration of a control plane.
#[derive(Clone, Debug, Default)]
pub struct Config {
    services: Vec<Service>,
    resources: Vec<Value>,
}

#[derive(Clone, Debug)]
struct Service {
    name: String,
    addresses: Vec<SocketAddr>,
    fallback: Vec<Value>,
}

impl Config {
    /// A configuration with one service, in one locality.
    pub fn service(name: &str, backends: &[&Backend]) -> Self {
        let service = Service {
            name: name.to_owned(),
            addresses: backends.iter().map(|backend| backend.address).collect(),
            fallback: Vec::new(),
        };
        Self {
            services: vec![service],
            resources: Vec::new(),
        }
    }

    /// Adds a service.
    #[must_use]
    pub fn and_service(mut self, name: &str, backends: &[&Backend]) -> Self {
        self.services.extend(Self::service(name, backends).services);
        self
    }

    /// Adds fallbacks to the service that was added last.
    #[must_use]
    pub fn falling_back_to(mut self, fallback: impl IntoIterator<Item = Value>) -> Self {
        if let Some(service) = self.services.last_mut() {
            service.fallback.extend(fallback);
        }
        self
    }

    /// Adds a service as the fallback of the service that was added last.
    #[must_use]
    pub fn with_fallback(self, service: &str) -> Self {
        self.falling_back_to([json!(service)])
    }

    /// Adds a DNS name as the fallback of the service that was added last.
    #[must_use]
    pub fn with_dns_fallback(self, host: &str, port: u16) -> Self {
        self.falling_back_to([json!({ "dns": format!("{host}:{port}") })])
    }

    /// Adds raw resources.
    #[must_use]
    pub fn with_resources(mut self, resources: impl IntoIterator<Item = Value>) -> Self {
        self.resources.extend(resources);
        self
    }

    fn to_yaml(&self) -> String {
        let mut yaml = match self.services.is_empty() {
            true => String::from("services: []\n"),
            false => String::from("services:\n"),
        };
        for Service {
            name,
            addresses,
            fallback,
        } in &self.services
        {
            let head = format!("- name: {name}\n  localities:\n  - region: r1\n    zone: z1\n");
            yaml.push_str(&head);
            let endpoint = |address: &SocketAddr| json!({ "address": address });
            let endpoints: Value = addresses.iter().map(endpoint).collect();
            // JSON is YAML, and writing to a string cannot fail.
            let _ = writeln!(yaml, "    endpoints: {endpoints}");
            if !fallback.is_empty() {
                let _ = writeln!(yaml, "  fallback: {}", Value::from(fallback.clone()));
            }
        }
        if !self.resources.is_empty() {
            yaml.push_str("resources:\n");
        }
        for resource in &self.resources {
            let _ = writeln!(yaml, "- {resource}");
        }
        yaml
    }
}

/// The address that follows `label` in `line`.
fn address(line: &str, label: &str) -> Option<SocketAddr> {
    let (_, after) = line.split_once(label)?;
    after.split_whitespace().next()?.parse().ok()
}
