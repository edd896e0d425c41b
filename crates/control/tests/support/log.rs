//! The lines of log that a test waits for or counts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::field::Field;
use tracing::{Event, Metadata, Subscriber, span};

/// Counts the log lines that begin with a text.
#[derive(Clone)]
pub struct LogLines {
    begin: &'static str,
    count: Arc<AtomicUsize>,
}

impl LogLines {
    pub fn beginning(begin: &'static str) -> Self {
        Self {
            begin,
            count: Arc::default(),
        }
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut begins = false;
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            begins |= field.name() == "message" && format!("{value:?}").starts_with(self.begin);
        });
        self.count.fetch_add(begins.into(), Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
