//! A child process that cannot outlive its test.
//!
//! Its output is shown when the test fails, because the reason is often there.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// The time that a step has on a busy machine. It should take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running process: its standard input, the lines of its standard output and of its standard error, and
/// a log of all it printed. Dropping it kills it.
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Starts `command`; `name` is its name in messages.
    ///
    /// # Panics
    ///
    /// If the program cannot be started.
    pub fn start(name: impl Into<String>, mut command: Command) -> Self {
        let name = name.into();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: cannot start {command:?}: {error}"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (sender, lines) = mpsc::channel();
        let (of_errors, errors) = mpsc::channel();
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        // A test that stopped listening still wants the lines in the log.
        copy_lines(stderr, log.clone(), "!", move |line| {
            drop(of_errors.send(line));
        });
        copy_lines(stdout, log.clone(), "|", move |line| {
            drop(sender.send(line));
        });
        Self {
            name,
            child,
            stdin,
            lines,
            errors,
            log,
        }
    }

    /// Writes one line to the standard input.
    ///
    /// # Panics
    ///
    /// If the process no longer reads.
    pub fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is piped");
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .unwrap_or_else(|error| panic!("{}: cannot send {line:?}: {error}", self.name));
    }

    /// Waits for the first new line of the standard output for which `wanted` returns a value.
    /// `what` names the line in a failure.
    ///
    /// # Panics
    ///
    /// If the process ends, or prints no such line within [`PATIENCE`].
    pub fn wait_for<T>(&self, what: &str, wanted: impl FnMut(&str) -> Option<T>) -> T {
        self.wait_in(&self.lines, what, wanted)
    }

    /// Waits for a new line of the standard error that contains `text`, and returns it.
    ///
    /// # Panics
    ///
    /// If the process ends, or prints no such line within [`PATIENCE`].
    pub fn wait_for_error(&self, text: &str) -> String {
        let wanted = |line: &str| line.contains(text).then(|| line.to_owned());
        self.wait_in(&self.errors, &format!("line with {text:?}"), wanted)
    }

    fn wait_in<T>(
        &self,
        lines: &Receiver<String>,
        what: &str,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(found) = wanted(&line) {
                        return found;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}: no {what} within {PATIENCE:?}", self.name)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{}: ended before {what}", self.name)
                }
            }
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal)
            .unwrap_or_else(|error| panic!("{}: cannot send {signal:?}: {error}", self.name));
    }

    /// Waits for the process to end by itself, and for all it printed.
    ///
    /// # Panics
    ///
    /// If it does not end within `patience`.
    pub fn wait(&mut self, patience: Duration) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + patience;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}: still running after {patience:?}", self.name)
                }
            }
        }
        let status = self.child.wait().expect("the child was not waited for yet");
        (status, lines)
    }

    /// Kills the process and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only for a process that is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let log = self
                .log
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            eprintln!("--- {} printed ({} lines):", self.name, log.len());
            for line in log.iter() {
                eprintln!("{line}");
            }
        }
    }
}

/// Makes `count` calls by a command of a client's script, one after the other. Returns the result of
/// each.
///
/// # Panics
///
/// If a result does not come within [`PATIENCE`].
pub(crate) fn results(process: &mut Process, command: &str, count: usize) -> Vec<Value> {
    process.send_line(&format!("{command} {count}"));
    let result = |_| process.wait_for("a call's result", |line| serde_json::from_str(line).ok());
    (0..count).map(result).collect()
}

/// Copies lines into the log, marked, and to `each`, until the end.
fn copy_lines(
    from: impl Read + Send + 'static,
    log: Arc<Mutex<Vec<String>>>,
    mark: &'static str,
    each: impl Fn(String) + Send + 'static,
) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if let Ok(mut log) = log.lock() {
                log.push(format!("{mark} {line}"));
            }
            each(line);
        }
    });
}

#[cfg(test)]
mod tests {
    use rustix::process::test_kill_process;

    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("sh", command)
    }

    #[test]
    fn lines_are_awaited_in_order_and_input_is_heard() {
        let mut process = shell("echo one; echo two; read line; echo got $line; cat");
        let two = process.wait_for("two", |line| (line == "two").then_some(2));
        assert_eq!(two, 2);
        process.send_line("three");
        process.wait_for("three", |line| (line == "got three").then_some(()));
    }

    #[test]
    fn lines_of_errors_are_awaited_apart() {
        let process = shell("echo why >&2; echo one; cat");
        process.wait_for("one", |line| (line == "one").then_some(()));
        assert_eq!(process.wait_for_error("wh"), "why");
    }

    #[test]
    #[should_panic(expected = "sh: ended before a line that never comes")]
    fn a_process_that_ends_fails_the_wait() {
        shell("echo one").wait_for("a line that never comes", |_| None::<()>);
    }

    #[test]
    fn dropping_kills() {
        let process = shell("echo ready; exec sleep 600");
        process.wait_for("ready", |line| (line == "ready").then_some(()));
        let pid = Pid::from_child(&process.child);
        drop(process);
        assert!(test_kill_process(pid).is_err());
    }

    #[test]
    fn an_exit_status_and_the_lines_before_it_are_seen() {
        let (status, lines) = shell("echo a; echo b; exit 3").wait(PATIENCE);
        assert_eq!(status.code(), Some(3));
        assert_eq!(lines, ["a", "b"]);
    }
}
