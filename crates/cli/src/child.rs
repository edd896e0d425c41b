//! Other crowfly processes, started by this one: the backends and the control plane of the demo and
//! of benchmarks.
//!
//! The children are this program, started again with other arguments, so one binary is all there is
//! to install. A child ends with its parent, because it exits when its standard input closes.

use std::{
    env, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{self, ChildStdin, ChildStdout},
};

/// The number of lines of a child's log that an error quotes.
const LOG_TAIL_LINES: usize = 5;

/// The program to run as a child.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// The program that runs now.
    ///
    /// # Errors
    /// The operating system cannot tell its path.
    pub fn current() -> Result<Self, ChildError> {
        env::current_exe()
            .map(Self::at)
            .map_err(ChildError::Program)
    }

    /// The program at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Starts the program with `args`. The log of the child goes to the file `log`, or is
    /// discarded.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn<I, S>(&self, name: &str, args: I, log: Option<&Path>) -> Result<Child, ChildError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let start = |source| ChildError::Start {
            name: name.to_owned(),
            source,
        };
        let stderr = match log {
            Some(path) => fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(start)?
                .into(),
            None => Stdio::null(),
        };
        let mut command = process::Command::new(&self.path);
        // Flags of the parent that came from the environment are not meant for its children.
        for (key, _) in env::vars_os().filter(|(key, _)| is_ours(key)) {
            command.env_remove(key);
        }
        let mut process = command
            .args(args)
            .arg("--exit-with-parent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // Ctrl-C at a terminal is for the parent, who then ends its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(start)?;
        let stdout = process
            .stdout
            .take()
            .map(|stdout| BufReader::new(stdout).lines());
        Ok(Child {
            name: name.to_owned(),
            log: log.map(Path::to_owned),
            _stdin: process.stdin.take(),
            process,
            stdout,
        })
    }
}

/// A process that this one started; it ends when this is dropped.
#[derive(Debug)]
pub struct Child {
    name: String,
    log: Option<PathBuf>,
    process: process::Child,
    /// The write end of the child's standard input. The pipe is held here, because `wait` on the
    /// process would close it, and so end the child.
    _stdin: Option<ChildStdin>,
    stdout: Option<Lines<BufReader<ChildStdout>>>,
}

impl Child {
    /// The name that the child was started with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Reads the child's standard output up to the line `WHAT ADDR`, and returns that address.
    ///
    /// # Errors
    /// The child ended before it wrote such a line.
    pub async fn announced(&mut self, what: &str) -> Result<SocketAddr, ChildError> {
        self.read(what, |rest| rest.trim().parse().ok()).await
    }

    /// Reads the child's standard output up to a line that begins with `what`, and returns the rest
    /// of that line.
    ///
    /// # Errors
    /// The child ended before it wrote such a line.
    pub async fn said(&mut self, what: &str) -> Result<String, ChildError> {
        self.read(what, |rest| Some(rest.to_owned())).await
    }

    async fn read<T>(
        &mut self,
        what: &str,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ChildError> {
        if let Some(stdout) = &mut self.stdout {
            while let Ok(Some(line)) = stdout.next_line().await {
                if let Some(found) = line.strip_prefix(what).and_then(&wanted) {
                    return Ok(found);
                }
            }
        }
        let status = self.wait().await?;
        Err(ChildError::Ended {
            name: self.name.clone(),
            status,
            log: self.log_tail(),
        })
    }

    /// Asks the child to end, with SIGTERM.
    ///
    /// # Errors
    /// The child has ended already.
    pub fn terminate(&self) -> Result<(), ChildError> {
        let pid = self
            .process
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| self.error(io::Error::other("it has ended already")))?;
        kill_process(pid, Signal::TERM).map_err(|errno| self.error(errno.into()))
    }

    /// Ends the child at once, with SIGKILL, and waits until its sockets are closed.
    ///
    /// # Errors
    /// The child has ended already.
    pub async fn kill(&mut self) -> Result<(), ChildError> {
        self.process
            .kill()
            .await
            .map_err(|source| self.error(source))
    }

    /// Waits until the child has ended.
    ///
    /// # Errors
    /// The operating system does not know the child.
    pub async fn wait(&mut self) -> Result<ExitStatus, ChildError> {
        self.process
            .wait()
            .await
            .map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> ChildError {
        ChildError::Signal {
            name: self.name.clone(),
            source,
        }
    }

    /// The last lines of the child's log.
    fn log_tail(&self) -> String {
        let log = self
            .log
            .as_ref()
            .and_then(|path| fs::read_to_string(path).ok());
        let log = log.unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

fn is_ours(key: &std::ffi::OsStr) -> bool {
    key.as_encoded_bytes().starts_with(b"CROWFLY_")
}

/// The ways in which a child can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The child ended although it should not have.
    #[error("{name} ended ({status}) before it was ready\n{log}")]
    Ended {
        /// The name of the child.
        name: String,
        /// The exit status of the child.
        status: ExitStatus,
        /// The last lines of the child's log.
        log: String,
    },
    /// The path of this program is unknown.
    #[error("cannot find this program's own file")]
    Program(#[source] io::Error),
    /// The child cannot be signalled or waited for.
    #[error("cannot control {name}")]
    Signal {
        /// The name of the child.
        name: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The child cannot be started.
    #[error("cannot start {name}")]
    Start {
        /// The name of the child.
        name: String,
        /// The operating system's error.
        source: io::Error,
    },
}
