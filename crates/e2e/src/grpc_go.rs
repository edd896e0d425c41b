//! Programs in Go, and a gRPC-Go client in a process of its own.
//!
//! gRPC-Go comes as source, and cannot be installed from a registry as the other peers are. So
//! these tests run only if `$CROWFLY_GO` names a `go` program. It builds with the packages in
//! `$GOPATH`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::peers::{self, leave_out, lock, run};
use crate::process::{Process, results};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/go/grpc_client.go");

/// A gRPC-Go channel in a process of its own.
pub struct GrpcGoClient {
    process: Process,
}

impl GrpcGoClient {
    /// Starts a client of `target` with this bootstrap. `None` means that the calling test is to be left out;
    /// that was printed.
    pub fn start_as(target: &str, bootstrap: &Value) -> Option<Self> {
        let mut command = Command::new(build(Path::new(CLIENT))?);
        command
            .arg(target)
            .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap.to_string())
            .env_remove("GRPC_XDS_BOOTSTRAP")
            // A proxy for the outside is no way to loopback.
            .env("NO_PROXY", "127.0.0.1,localhost");
        Some(Self {
            process: Process::start("gRPC-Go client", command),
        })
    }

    /// Replaces the channel by one to `target`.
    pub fn target(&mut self, target: &str) {
        self.process.send_line(&format!("target {target}"));
    }

    /// Makes `count` calls by a command of the program, such as `call` or `fail 14`, one after the
    /// other. Returns the result of each.
    pub fn results(&mut self, command: &str, count: usize) -> Vec<Value> {
        results(&mut self.process, command, count)
    }
}

/// Builds a program of one file with the Go of `$CROWFLY_GO`. `None` means that the calling test is to be left out,
/// because there is no such variable; that was printed.
///
/// # Panics
///
/// If it cannot be built.
pub fn build(source: &Path) -> Option<PathBuf> {
    static BUILT: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());

    let Some(go) = env::var_os("CROWFLY_GO").filter(|value| !value.is_empty()) else {
        leave_out("gRPC-Go", "CROWFLY_GO is not set");
        return None;
    };
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = built.get(source) {
        return Some(program.clone());
    }
    let folder = peers::dir().join("go");
    fs::create_dir_all(&folder).expect("a folder for programs");
    let _lock = lock(&folder.with_extension("lock")).expect("a lock");
    let program = folder.join(source.file_stem().expect("a file"));
    let mut command = Command::new(go);
    command
        .args(["build", "-o"])
        .args([&program, source])
        // Packages come from $GOPATH.
        .env("GO111MODULE", "off");
    run(&mut command).unwrap_or_else(|error| panic!("CROWFLY_GO is set, but {error}"));
    built.insert(source.to_owned(), program.clone());
    Some(program)
}
