//! A real etcd, and its own command for writing to it.
//!
//! Keys are written by `etcdctl`, because it shares no code with the client that is tested.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crowfly_testkit::Reserved;
use tempfile::TempDir;

use crate::process::{PATIENCE, Process};

/// The time between two looks whether the etcd answers. There is no line in its log that all
/// versions share.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A running etcd of one member.
pub struct Etcd {
    /// The address for clients.
    pub address: SocketAddr,
    program: PathBuf,
    /// More flags of the program.
    flags: Vec<String>,
    /// Flags that `etcdctl` needs to be let in.
    control_flags: Vec<String>,
    process: Option<Process>,
    dir: TempDir,
    /// The port stays with it while it is down.
    _port: Reserved,
}

impl Etcd {
    /// Starts an etcd without TLS.
    ///
    /// # Panics
    ///
    /// If it does not answer within [`PATIENCE`].
    pub fn start(program: &Path) -> Self {
        Self::start_with(program, "http", &[], &[])
    }

    /// Starts an etcd with more flags. `control_flags` are those that `etcdctl` needs for it.
    ///
    /// # Panics
    ///
    /// If it does not answer within [`PATIENCE`].
    pub fn start_with(
        program: &Path,
        scheme: &str,
        flags: &[String],
        control_flags: &[String],
    ) -> Self {
        let port = Reserved::new();
        let url = format!("{scheme}://{}", port.address);
        let mut all = vec![format!("--listen-client-urls={url}")];
        all.push(format!("--advertise-client-urls={url}"));
        all.push("--listen-peer-urls=http://127.0.0.1:0".to_owned());
        all.push("--logger=zap".to_owned());
        all.extend(flags.iter().cloned());
        let mut control = vec![format!("--endpoints={url}")];
        control.extend(control_flags.iter().cloned());
        let mut etcd = Self {
            address: port.address,
            program: program.to_owned(),
            flags: all,
            control_flags: control,
            process: None,
            dir: tempfile::tempdir().expect("a temporary folder"),
            _port: port,
        };
        etcd.resume();
        etcd
    }

    /// Kills it, as a crash would. Its keys stay on disk.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again, with the keys that it had.
    ///
    /// # Panics
    ///
    /// If it does not answer within [`PATIENCE`].
    pub fn resume(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(self.dir.path());
        command.args(&self.flags);
        self.process = Some(Process::start("etcd", command));
        let deadline = Instant::now() + PATIENCE;
        while self.try_control(&["endpoint", "health"]).is_err() {
            assert!(Instant::now() < deadline, "etcd does not answer");
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Lets `etcdctl` log in as `user:password` from now on.
    pub fn log_in(&mut self, user: &str) {
        self.control_flags.push(format!("--user={user}"));
    }

    /// Sets a key.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn put(&self, key: &str, value: &str) {
        self.control(&["put", "--", key, value]);
    }

    /// Sets a key that goes when its lease is not renewed for so many seconds.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn put_leased(&self, key: &str, value: &str, seconds: u32) {
        let granted = self.control(&["lease", "grant", &seconds.to_string()]);
        let lease = granted.split_whitespace().nth(1).expect("lease ID granted");
        self.control(&["put", &format!("--lease={lease}"), "--", key, value]);
    }

    /// Deletes a key.
    ///
    /// # Panics
    ///
    /// If that fails, or if there is no such key.
    pub fn delete(&self, key: &str) {
        assert_eq!(self.control(&["del", "--", key]).trim(), "1", "{key}");
    }

    /// Forgets all but the present values.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn compact(&self) {
        let status = self.control(&["endpoint", "status", "--write-out=json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON of etcdctl");
        let revision = &status[0]["Status"]["header"]["revision"];
        self.control(&["compaction", &revision.to_string()]);
    }

    /// Runs `etcdctl`, and returns its output.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn control(&self, arguments: &[&str]) -> String {
        // It gives up after 5 seconds otherwise, which a busy machine may need.
        let patient = [&["--command-timeout=60s"], arguments].concat();
        let result = self.try_control(&patient);
        result.unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    fn try_control(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(self.program.with_file_name("etcdctl"))
            .env("ETCDCTL_API", "3")
            .args(&self.control_flags)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
