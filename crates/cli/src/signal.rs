//! When a process is told to reload, or to end: by a signal, or because the process that started it is gone.

use std::{
    io::{self, Read},
    process, thread,
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, listened to from the moment it is made, so that none is missed before the
/// first [`recv`](Self::recv).
pub(crate) struct Termination {
    interrupt: Signal,
    terminate: Signal,
}

impl Termination {
    /// Replaces the default reaction to both signals, which is to die at once.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next of the two.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// SIGHUP: read the configuration again.
pub(crate) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Ends this process when its standard input closes.
///
/// A parent that holds the other end of the pipe needs to do nothing: however it ends, even by
/// SIGKILL, the kernel closes the pipe. That needs no signal, no process group and no unsafe code.
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
