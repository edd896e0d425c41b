//! The machine of the benchmark: its cores, the number of files that may be open, and the memory
//! and time that a process uses.
//!
//! The server and the clients have a core each, because clients on the same core would slow the
//! server down.

use std::{fs, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use super::super::BenchError;

/// The cores for the server and for its clients. They are the same if there is only one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cores {
    pub(super) server: usize,
    pub(super) clients: usize,
}

impl Cores {
    /// The first two cores that this process may use.
    pub(super) fn choose() -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let server = allowed.next().unwrap_or(0);
        let clients = allowed.next().unwrap_or(server);
        Ok(Self { server, clients })
    }
}

/// Keeps this thread, and those that it starts, on one core.
pub(super) fn stay_on(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Allows this process as many open files as it may have.
///
/// # Errors
/// These are fewer than `needed`.
pub(super) fn allow_files(needed: usize) -> Result<(), BenchError> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = needed as u64;
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(allowed) = maximum.filter(|&maximum| maximum < needed) {
        return Err(BenchError::Files { needed, allowed });
    }
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    let raised = setrlimit(Resource::Nofile, limit).map_err(io::Error::from);
    raised.map_err(BenchError::Machine)
}

/// The use of memory and time by a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// The memory in bytes.
    pub(super) memory: f64,
    /// The most memory so far, in bytes.
    pub(super) peak: f64,
    /// The seconds on a core so far.
    pub(super) cpu: f64,
}

impl Usage {
    /// Reads it for a process.
    pub(super) fn of(process: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let kilobytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            number.and_then(|number| number.parse::<f64>().ok())
        };
        let bytes = |field| kilobytes(field).unwrap_or_default() * 1024.0;
        let mut nanoseconds = 0.0;
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            // A thread may end before it is read.
            let times = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            let on_core = times.split_whitespace().next();
            nanoseconds += on_core
                .and_then(|time| time.parse::<f64>().ok())
                .unwrap_or_default();
        }
        Ok(Self {
            memory: bytes("VmRSS:"),
            peak: bytes("VmHWM:"),
            cpu: nanoseconds / 1e9,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_time() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.memory > 1e5, "{usage:?}");
        assert!(usage.peak >= usage.memory, "{usage:?}");
        assert!(usage.cpu > 0.0, "{usage:?}");
    }

    #[test]
    fn too_many_files_are_refused_with_both_numbers() {
        let Some(allowed) = getrlimit(Resource::Nofile).maximum else {
            return;
        };
        let error = allow_files(allowed as usize + 1).unwrap_err().to_string();
        assert!(error.contains(&allowed.to_string()), "{error}");
        assert!(error.contains("ulimit -n"), "{error}");
    }
}
