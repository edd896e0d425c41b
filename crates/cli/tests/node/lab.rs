//! A place for tests against the kernel: a cgroup, network namespaces and a bpffs of their own.
//!
//! Traffic stays on the loopback devices of the namespaces, which have no route anywhere. Everything is
//! removed when a lab is dropped, and what a killed test left is removed by the next lab.
//!
//! `$CROWFLY_NODE` decides what happens on a machine that cannot: with `auto`, the default, a test is
//! left out with a message; with `require` it fails; with `off` all of them are left out.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crowfly_node::view::{FrontendView, View};

use crate::probe::{ANSWER, CGROUP};

const BINARY: &str = env!("CARGO_BIN_EXE_crowfly");
const PREFIX: &str = "crowfly-test-";
const PATIENCE: Duration = Duration::from_secs(20);

/// A cgroup, a bpffs and a folder for files.
pub(crate) struct Lab {
    name: String,
    cgroup: PathBuf,
    folder: PathBuf,
    namespaces: Cell<usize>,
}

impl Lab {
    /// A lab, or `None` if the test is to be left out, which was printed.
    pub(crate) fn new() -> Option<Self> {
        static LABS: AtomicUsize = AtomicUsize::new(0);
        if let Err(reason) = possible() {
            return leave_out(&reason);
        }
        let root = crowfly_node::check::default_cgroup().unwrap();
        sweep(&root);
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let lab = Self {
            cgroup: root.join(&name),
            folder: std::env::temp_dir().join(&name),
            namespaces: Cell::new(0),
            name,
        };
        fs::create_dir(&lab.cgroup).unwrap();
        fs::create_dir_all(lab.folder.join("bpf")).unwrap();
        run(Command::new("mount")
            .args(["-t", "bpf", "bpf"])
            .arg(lab.folder.join("bpf")));
        Some(lab)
    }

    pub(crate) fn pins(&self) -> PathBuf {
        self.folder.join("bpf/crowfly")
    }

    pub(crate) fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join("node.yaml")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        // The agent makes the directory.
        self.folder.join("run/node.sock")
    }

    /// Runs a sub-command of `crowfly node` to its end: success, and standard output and error.
    pub(crate) fn crowfly(&self, arguments: &[&str]) -> (bool, String) {
        // An agent that was to be refused, and is not, would run for ever.
        let limit = PATIENCE.as_secs().to_string();
        let output = self.command(&["timeout", &limit], arguments).output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// `crowfly node` with the places of this lab, started by another program if one is given.
    fn command(&self, by: &[&str], arguments: &[&str]) -> Command {
        let words = [by, &[BINARY, "node"]].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(arguments)
            .env("CROWFLY_NODE_CGROUP", &self.cgroup)
            .env("CROWFLY_NODE_PINS", self.pins())
            .env("CROWFLY_NODE_SOCKET", self.socket())
            .env("CROWFLY_NODE_NAME", "n1")
            .env("CROWFLY_NODE_ZONE", "a");
        command
    }

    /// Starts an agent with these services, and waits until all sources were heard.
    pub(crate) fn agent(&self, services: &str, flags: &[&str]) -> Agent<'_> {
        fs::write(self.config(), services).unwrap();
        self.adopt(flags)
    }

    /// Starts an agent with the services that are in the file, and waits until all sources were heard.
    pub(crate) fn adopt(&self, flags: &[&str]) -> Agent<'_> {
        self.adopt_by(&[], flags)
    }

    /// As `adopt`, by a program that becomes the agent.
    pub(crate) fn adopt_by(&self, by: &[&str], flags: &[&str]) -> Agent<'_> {
        let mut agent = self.start_piped(by, flags, Stdio::piped());
        let mut line = String::new();
        let mut stdout = BufReader::new(agent.process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("routing "), "{line}{}", agent.log());
        agent
    }

    /// Starts an agent with these services, and waits until it answers.
    pub(crate) fn start(&self, services: &str, flags: &[&str]) -> Agent<'_> {
        fs::write(self.config(), services).unwrap();
        let agent = self.start_piped(&[], flags, Stdio::null());
        let begin = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            assert!(begin.elapsed() < PATIENCE, "{}", agent.log());
            thread::sleep(Duration::from_millis(10));
        }
        agent
    }

    fn start_piped(&self, by: &[&str], flags: &[&str], stdout: Stdio) -> Agent<'_> {
        let config = self.config();
        let mut arguments = vec!["--config", config.to_str().unwrap()];
        arguments.extend(flags);
        let process = self
            .command(by, &arguments)
            .stdout(stdout)
            .stderr(fs::File::create(self.folder.join("agent.log")).unwrap())
            .spawn()
            .unwrap();
        Agent { lab: self, process }
    }

    /// A new network namespace with a process in it, whose sockets are in the lab's cgroup.
    pub(crate) fn probe(&self) -> Probe {
        let number = self.namespaces.replace(self.namespaces.get() + 1);
        let namespace = format!("{}-{number}", self.name);
        run(Command::new("ip").args(["netns", "add", &namespace]));
        run(Command::new("ip").args(["-n", &namespace, "link", "set", "lo", "up"]));
        // Two sources refuse backends on loopback addresses.
        let of_backends = (1..=3).map(|number| format!("198.51.100.{number}/32"));
        let addresses = ["fd44::1/128", "fd44::2/128"].map(str::to_owned);
        for address in addresses.into_iter().chain(of_backends) {
            let mut add = Command::new("ip");
            add.args(["-n", &namespace, "addr", "add", &address, "dev", "lo"]);
            if address.contains(':') {
                // Otherwise the kernel may take a moment until a server can have the address.
                add.arg("nodad");
            }
            run(&mut add);
        }
        // Not `ip netns exec`: it would hide cgroup2.
        let mut process = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{namespace}"))
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "probe_process", "--nocapture"])
            .env(CGROUP, &self.cgroup)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Probe {
            stdin: process.stdin.take().unwrap(),
            stdout: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        remove(&self.name, &self.cgroup, &self.folder);
    }
}

/// Removes the namespaces, the cgroup, the mount and the files of a lab.
fn remove(name: &str, cgroup: &Path, folder: &Path) {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    for process in processes.lines() {
        let _ = Command::new("kill").args(["-KILL", process]).status();
    }
    let _ = Command::new("umount")
        .arg("-l")
        .arg(folder.join("bpf"))
        .stderr(Stdio::null())
        .status();
    for namespace in names("/run/netns".as_ref()) {
        if namespace
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('-'))
        {
            let _ = Command::new("ip")
                .args(["netns", "delete", &namespace])
                .status();
        }
    }
    // Its processes take a moment to go.
    let begin = Instant::now();
    while fs::remove_dir(cgroup).is_err() && cgroup.exists() && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
    let _ = fs::remove_dir_all(folder);
}

/// Removes the labs of processes that are gone.
fn sweep(root: &Path) {
    for name in names(root) {
        let process = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        let is_gone = |process: &str| !Path::new("/proc").join(process).exists();
        if process.is_some_and(is_gone) {
            remove(&name, &root.join(&name), &std::env::temp_dir().join(&name));
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

fn possible() -> Result<(), String> {
    if std::env::var("CROWFLY_NODE").is_ok_and(|value| value == "off") {
        return Err("CROWFLY_NODE=off".to_owned());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    if user.and_then(|user| user.split_whitespace().nth(1)) != Some("0") {
        return Err("root".to_owned());
    }
    if crowfly_node::check::default_cgroup().is_none() {
        return Err("a cgroup v2".to_owned());
    }
    for (program, package) in [
        ("ip", "iproute2"),
        ("nsenter", "util-linux"),
        ("mount", "mount"),
        ("timeout", "coreutils"),
    ] {
        let found = Command::new(program).arg("--version").output();
        let found = found.or_else(|_| Command::new(program).arg("-V").output());
        found.map_err(|_| format!("the program {program} (on Debian: {package})"))?;
    }
    Ok(())
}

/// Leaves a test out, which is printed, or fails it if none may be left out.
pub(crate) fn leave_out<T>(reason: &str) -> Option<T> {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let is_required = std::env::var("CROWFLY_NODE").is_ok_and(|value| value == "require");
    assert!(!is_required, "{test} needs {reason}");
    // Past the test harness, which shows only what failing tests print.
    drop(writeln!(
        std::io::stderr(),
        "crowfly-node: left out {test}: it needs {reason}"
    ));
    None
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

/// A running `crowfly node`.
pub(crate) struct Agent<'a> {
    lab: &'a Lab,
    process: Child,
}

impl Agent<'_> {
    /// Writes other services, and waits until they are routed.
    pub(crate) fn apply(&self, services: &str) {
        self.replace(services);
        let config = self.lab.config();
        let (ok, wanted) =
            self.lab
                .crowfly(&["--config", config.to_str().unwrap(), "--dry-run", "--json"]);
        assert!(ok, "{wanted}");
        let wanted: View = serde_json::from_str(&wanted).unwrap();
        self.wait(|view| plain(view) == plain(&wanted));
    }

    /// Writes other services, without waiting for their effect.
    pub(crate) fn replace(&self, services: &str) {
        // By a rename, as a careful program does it.
        let new = self.lab.folder.join("new");
        fs::write(&new, services).unwrap();
        fs::rename(new, self.lab.config()).unwrap();
    }

    /// Writes a file as it is, without waiting for its effect.
    pub(crate) fn write(&self, text: &str) {
        fs::write(self.lab.config(), text).unwrap();
    }

    /// Waits until the agent's state is as wanted, and returns it.
    pub(crate) fn wait(&self, wanted: impl Fn(&View) -> bool) -> View {
        let begin = Instant::now();
        loop {
            let view = self.view();
            if wanted(&view) {
                return view;
            }
            assert!(begin.elapsed() < PATIENCE, "{view:#?}\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn view(&self) -> View {
        let mut stream = UnixStream::connect(self.lab.socket()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        serde_json::from_slice(&answer).unwrap()
    }

    /// A line of the kernel's status of its process.
    pub(crate) fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let mut lines = status.lines();
        let found = lines.find_map(|line| line.strip_prefix(name));
        found.unwrap().trim().to_owned()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.lab.folder.join("agent.log")).unwrap()
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Ends it as an operator would.
    pub(crate) fn stop(mut self) {
        run(Command::new("kill").args(["-TERM", &self.process.id().to_string()]));
        assert!(self.process.wait().unwrap().success());
        assert!(!self.lab.socket().exists());
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The counters of a frontend, summed over its backends: opened, active, failed.
pub(crate) fn counters(frontend: &FrontendView) -> (u64, u64, u64) {
    frontend.backends.iter().fold((0, 0, 0), |sum, backend| {
        (
            sum.0 + backend.opened,
            sum.1 + backend.active,
            sum.2 + backend.failed,
        )
    })
}

/// A view without what depends on time.
fn plain(view: &View) -> Vec<FrontendView> {
    let mut frontends = view.frontends.clone();
    for frontend in &mut frontends {
        for backend in &mut frontend.backends {
            (backend.opened, backend.active, backend.failed) = (0, 0, 0);
        }
    }
    frontends
}

/// A process that opens sockets in a namespace.
pub(crate) struct Probe {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Probe {
    /// Tells the process to do something, and returns its answer.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}").unwrap();
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).unwrap();
            assert!(read > 0, "the probe ended at: {command}");
            // The harness prints the name of the test on the first answer's line.
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim_end().to_owned();
            }
        }
    }

    /// How often each backend answered, and each error came.
    pub(crate) fn counts(&mut self, command: &str) -> Vec<(String, usize)> {
        let answer = self.ask(command);
        let counts = answer.split(' ').map(|count| {
            let (name, count) = count.split_once('=').unwrap();
            (name.to_owned(), count.parse().unwrap())
        });
        counts.collect()
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
