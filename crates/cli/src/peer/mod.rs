//! `crowfly peer`: a process in a network namespace and a cgroup, which serves or connects.
//!
//! The benchmark and the demo of the node agent start it; users do not. The peer speaks a protocol
//! of its own over plain TCP, because the agent routes connections and nothing else should cost
//! time.
//!
//! A socket belongs to the namespace of the thread that made it, and to the cgroup that the process
//! was in. So the process joins its cgroup first, and makes its sockets on a thread in the
//! namespace.

mod client;
mod handle;
mod server;

pub use handle::PeerError;

pub(crate) use client::{Failure, Order, Sample, Seen, Targets, micros};
pub(crate) use handle::{Peer, Place};

use std::{fs, fs::File, io, net::SocketAddr, path::PathBuf, thread};

use clap::{Args, Subcommand};
use rustix::thread::{CpuSet, LinkNameSpaceType};
use rustix::thread::{move_into_link_name_space, sched_getaffinity, sched_setaffinity};

/// The server's answer to `ASK`.
const ANSWER: u8 = b'!';
/// Asks for one byte.
const ASK: u8 = b'?';
/// Asks for the server's name, which ends with a line feed.
const NAME: u8 = b'n';
/// Announces a number of bytes (8 bytes, big endian), which one byte answers.
const TAKE: u8 = b't';

/// Serve or connect in a network namespace (for crowfly's own benchmark and demo)
#[derive(Args, Clone, Debug)]
pub struct PeerArgs {
    /// The file of the network namespace
    #[arg(long, value_name = "FILE")]
    pub netns: Option<PathBuf>,

    /// The directory of the cgroup to join
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,

    /// The number of the one processor to run on
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,

    /// The part to play.
    #[command(subcommand)]
    pub role: Role,
}

/// The part that a peer plays.
#[allow(
    missing_docs,
    reason = "the help of a command is the documentation of its arguments"
)]
#[derive(Clone, Debug, Subcommand)]
pub enum Role {
    /// Accept connections
    Serve {
        /// The address to listen on
        #[arg(long, value_name = "ADDR")]
        listen: SocketAddr,

        /// The name to answer with; by default the address that the client reached
        #[arg(long, value_name = "NAME")]
        name: Option<String>,

        /// The number of connections to serve at once
        #[arg(long, value_name = "N", default_value_t = 1)]
        threads: usize,
    },
    /// Obey orders on standard input, one JSON object per line
    Connect,
}

/// Plays the part until the parent is gone.
///
/// # Errors
/// The cgroup or the namespace cannot be joined, or the address is taken.
pub fn run(args: PeerArgs) -> Result<(), io::Error> {
    if let Some(cgroup) = &args.cgroup {
        fs::write(cgroup.join("cgroup.procs"), "0")?;
    }
    let playing = thread::spawn(move || {
        if let Some(cpu) = args.cpu {
            run_on(cpu)?;
        }
        if let Some(path) = &args.netns {
            let namespace = File::open(path)?;
            move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&namespace),
                Some(LinkNameSpaceType::Network),
            )?;
        }
        match args.role {
            Role::Serve {
                listen,
                name,
                threads,
            } => server::serve(listen, name.as_deref(), threads),
            Role::Connect => client::obey(),
        }
    });
    playing
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the peer's thread failed")))
}

/// The first of the processors that this process may run on.
pub(crate) fn first_cpu() -> io::Result<usize> {
    let allowed = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu));
    first.ok_or_else(|| io::Error::other("no processor is allowed"))
}

/// Keeps this thread, and those that it starts, on one processor.
fn run_on(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(io::Error::from)
}
