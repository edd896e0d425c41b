//! `crowfly control` as a process, which can be killed and started again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crowfly_testkit::Reserved;

use crate::lab::Lab;

/// A running `crowfly control`.
pub(crate) struct Control {
    process: Child,
    config: PathBuf,
    /// The address for clients.
    pub(crate) address: String,
    /// The address of the admin pages.
    pub(crate) admin: String,
    /// The port stays with it while it is down.
    _port: Reserved,
}

impl Control {
    pub(crate) fn start(lab: &Lab, text: &str) -> Self {
        let config = lab.config().with_file_name("control.yaml");
        fs::write(&config, text).unwrap();
        // The port belongs to a runtime, though nothing is sent by it.
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let port = runtime.block_on(async { Reserved::new() });
        let address = port.address.to_string();
        let (process, admin) = run(&config, &address);
        Self {
            process,
            config,
            address,
            admin,
            _port: port,
        }
    }

    /// Replaces the file that it serves.
    pub(crate) fn serve(&self, text: &str) {
        let new = self.config.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.config).unwrap();
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again, at the same address.
    pub(crate) fn resume(&mut self) {
        (self.process, self.admin) = run(&self.config, &self.address);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the process, and returns the address of its admin pages.
fn run(config: &PathBuf, address: &str) -> (Child, String) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_crowfly"))
        .args(["control", "--listen", address, "--admin", "127.0.0.1:0"])
        .args(["--load-report-interval", "1s", "--config"])
        .arg(config)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    let listening = lines.next().unwrap();
    assert_eq!(listening, format!("listening on {address}"));
    let admin = lines.next().unwrap();
    let admin = admin.strip_prefix("admin on http://").unwrap();
    (process, admin.trim_end_matches('/').to_owned())
}
