//! The log of a test, because some of what happens to reports is only told there.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt;

/// The lines that are logged on this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// With one subscriber in the process, `tracing` asks whichever thread comes first whether anybody listens, and
    /// other tests do not. So there are two.
    pub(crate) fn listen(&self) -> (DefaultGuard, Dispatch) {
        let (log, second) = (self.clone(), Dispatch::new(fmt().finish()));
        let subscriber = fmt().with_ansi(false).with_max_level(Level::INFO);
        let subscriber = subscriber.with_writer(move || log.clone());
        (set_default(subscriber.finish()), second)
    }

    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        let all = String::from_utf8(bytes.clone()).unwrap();
        let lines = all.lines().filter(|line| line.contains(text));
        lines.map(ToOwned::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
