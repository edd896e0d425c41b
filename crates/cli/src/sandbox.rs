//! A place on this machine for the node agent's benchmark and demo: a cgroup, network namespaces and a
//! bpffs of their own.
//!
//! The namespaces have no route out of the sandbox. Everything is removed when the sandbox is dropped. If a process is
//! killed, the next sandbox removes its remains.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// The directory in which `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// The time that ended processes have to leave the cgroup.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// A cgroup, a bpffs, namespaces and a folder for files.
#[derive(Debug)]
pub(crate) struct Sandbox {
    name: String,
    cgroup: PathBuf,
    folder: PathBuf,
}

/// The reasons why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// A program, a right or a cgroup that the sandbox needs is missing.
    #[error("this needs {0}")]
    Needs(String),
    /// A file, a mount or a cgroup.
    #[error("{}: {what}", path.display())]
    Path {
        /// The path of the file, the mount or the cgroup.
        path: PathBuf,
        /// The attempt that failed.
        what: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("{command}: {said}")]
    Program {
        /// The program with its arguments.
        command: String,
        /// The output of the program, or the reason why it did not start.
        said: String,
    },
}

impl Sandbox {
    /// Makes a sandbox. `purpose` is part of its name, and `programs` are needed besides `ip`, each with
    /// its package on Debian.
    pub(crate) fn new(purpose: &str, programs: &[(&str, &str)]) -> Result<Self, SandboxError> {
        let root = possible(programs)?;
        let prefix = prefix(purpose);
        sweep(&root, &prefix);
        let name = format!("{prefix}{}", std::process::id());
        let sandbox = Self {
            cgroup: root.join(&name),
            folder: std::env::temp_dir().join(&name),
            name,
        };
        make(&sandbox.cgroup)?;
        let bpffs = sandbox.folder.join("bpf");
        make(&sandbox.folder)?;
        make(&bpffs)?;
        mount("bpf", &bpffs, "bpf", MountFlags::empty(), None)
            .map_err(|errno| failed(&bpffs, "cannot mount a bpffs", errno.into()))?;
        Ok(sandbox)
    }

    /// The cgroup whose processes are routed.
    pub(crate) fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    /// The folder for files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A directory for an agent's pins.
    pub(crate) fn pins(&self) -> PathBuf {
        self.folder.join("bpf/crowfly")
    }

    /// The path of an agent's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("node.sock")
    }

    /// The name of a namespace, as `ip netns` lists it.
    pub(crate) fn name_of(&self, namespace: &str) -> String {
        format!("{}-{namespace}", self.name)
    }

    /// The file of a namespace.
    pub(crate) fn path_of(&self, namespace: &str) -> PathBuf {
        Path::new(NAMESPACES).join(self.name_of(namespace))
    }

    /// Makes a namespace, whose loopback device is up.
    pub(crate) fn namespace(&self, namespace: &str) -> Result<(), SandboxError> {
        run("ip", ["netns", "add", &self.name_of(namespace)])?;
        self.ip(namespace, "link set lo up")
    }

    /// Runs `ip` in a namespace, with arguments that are separated by blanks.
    pub(crate) fn ip(&self, namespace: &str, words: &str) -> Result<(), SandboxError> {
        let name = self.name_of(namespace);
        let words = ["-n", &name].into_iter().chain(words.split(' '));
        run("ip", words).map(drop)
    }

    /// Connects two namespaces by a pair of devices, each named after the namespace at the other end, with these
    /// addresses.
    pub(crate) fn connect(
        &self,
        [a, b]: [&str; 2],
        [on_a, on_b]: [&str; 2],
    ) -> Result<(), SandboxError> {
        let other = self.name_of(b);
        let pair = format!("link add {b} type veth peer name {a} netns {other}");
        self.ip(a, &pair)?;
        for (namespace, device, address) in [(a, b, on_a), (b, a, on_b)] {
            self.ip(namespace, &format!("addr add {address} dev {device}"))?;
            self.ip(namespace, &format!("link set {device} up"))?;
        }
        Ok(())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        remove(&self.name, &self.cgroup, &self.folder);
    }
}

/// The root of cgroup v2, if a sandbox is possible.
fn possible(programs: &[(&str, &str)]) -> Result<PathBuf, SandboxError> {
    if !geteuid().is_root() {
        let needs =
            "root, because it makes network namespaces and loads eBPF programs: sudo crowfly ...";
        return Err(SandboxError::Needs(needs.to_owned()));
    }
    for (program, package) in [("ip", "iproute2")].iter().chain(programs) {
        let found = Command::new(program)
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if found.is_err() {
            let needs = format!("the program {program} (on Debian: apt install {package})");
            return Err(SandboxError::Needs(needs));
        }
    }
    crowfly_node::check::default_cgroup()
        .ok_or_else(|| SandboxError::Needs("a cgroup v2: mount -t cgroup2 cgroup2 DIR".to_owned()))
}

/// Runs a program to its end, and returns its output.
pub(crate) fn run<I, S>(program: &str, words: I) -> Result<String, SandboxError>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    // Ctrl-C is for us: `ip` that is ended halfway leaves a namespace that is none.
    command.process_group(0);
    let shown = command_words(&command).join(" ");
    let failed = |said: String| SandboxError::Program {
        command: shown,
        said,
    };
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Err(failed(error.to_string())),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn command_words(command: &Command) -> Vec<String> {
    let program = [command.get_program()].into_iter();
    let words = program.chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn make(directory: &Path) -> Result<(), SandboxError> {
    fs::create_dir(directory)
        .map_err(|source| failed(directory, "cannot make the directory", source))
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> SandboxError {
    SandboxError::Path {
        path: path.to_owned(),
        what,
        source,
    }
}

/// The files, cgroups and namespaces that are still there of this process's sandboxes for `purpose`.
///
/// A sandbox that was dropped leaves nothing, unless the kernel refused to remove a part.
pub(crate) fn left_over(purpose: &str) -> Vec<PathBuf> {
    let Some(root) = crowfly_node::check::default_cgroup() else {
        return Vec::new();
    };
    let own = std::process::id();
    let prefix = prefix(purpose);
    let parts = parts(&root, &prefix).into_iter();
    let parts = parts.filter(|(process, _)| *process == own);
    parts.map(|(_, path)| path).collect()
}

/// Removes the sandboxes of processes that are gone, including those that were removed only in part.
fn sweep(root: &Path, prefix: &str) {
    let processes = parts(root, prefix).into_iter().map(|(process, _)| process);
    let processes: BTreeSet<u32> = processes.collect();
    for process in processes {
        if !Path::new("/proc").join(process.to_string()).exists() {
            let name = format!("{prefix}{process}");
            let folder = std::env::temp_dir().join(&name);
            remove(&name, &root.join(&name), &folder);
        }
    }
}

/// The cgroups, namespaces and folders of all sandboxes with this prefix, each with its process.
fn parts(root: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    // The name of a namespace has its own name behind the process.
    let process = |name: &str| name.strip_prefix(prefix)?.split('-').next()?.parse().ok();
    let places = [root.to_owned(), NAMESPACES.into(), std::env::temp_dir()];
    let parts = places.into_iter().flat_map(|place| {
        let names = names(&place).into_iter();
        names.filter_map(move |name| Some((process(&name)?, place.join(&name))))
    });
    parts.collect()
}

/// The beginning of the names of all sandboxes for `purpose`.
fn prefix(purpose: &str) -> String {
    format!("crowfly-{purpose}-")
}

/// Removes all parts of a sandbox that exist.
fn remove(name: &str, cgroup: &Path, folder: &Path) {
    let begin = Instant::now();
    end_processes(cgroup);
    // Detaches the programs, too: the pins hold them.
    let _ = unmount(folder.join("bpf"), UnmountFlags::DETACH);
    let own = format!("{name}-");
    for namespace in names(NAMESPACES.as_ref()) {
        if namespace.starts_with(&own) {
            remove_namespace(&Path::new(NAMESPACES).join(namespace));
        }
    }
    while fs::remove_dir(cgroup).is_err() && cgroup.exists() && begin.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
    let _ = fs::remove_dir_all(folder);
}

/// Does what `ip netns delete` does, but in this process. A Ctrl-C could end another process between its start and its
/// `setpgid`, and the namespace would stay.
fn remove_namespace(file: &Path) {
    // A namespace that was made in part is a file without a mount.
    let _ = unmount(file, UnmountFlags::DETACH);
    let _ = fs::remove_file(file);
}

fn end_processes(cgroup: &Path) {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    for process in processes.lines() {
        let process = process.parse().ok().and_then(Pid::from_raw);
        if let Some(process) = process {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}
