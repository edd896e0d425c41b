//! The signals that end a process or make it reload, and the end of the parent process, which ends
//! a child.

use std::{
    io::{self, Read},
    process, thread,
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGTERM and SIGINT from the moment it is made, so that none is missed before the
/// first [`recv`](Self::recv).
pub(crate) struct Termination {
    interrupt: Signal,
    terminate: Signal,
}

impl Termination {
    /// Begins to listen. The default reaction to both signals, which is to end at once, is
    /// replaced.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next SIGTERM or SIGINT.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Listens for SIGHUP, which makes a server read its configuration again.
pub(crate) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Ends this process when its standard input closes.
///
/// The parent holds the other end of the pipe. However the parent ends, even by SIGKILL, the kernel
/// closes the pipe. So no signal, no process group and no unsafe code is needed.
pub(crate) fn exit_with_parent() {
    thread::spawn(|| {
        let mut buffer = [0; 64];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) | Err(_) => process::exit(0),
                Ok(_) => {}
            }
        }
    });
}
