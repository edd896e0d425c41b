//! The lines of log that a test waits for or counts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::field::Field;
use tracing::{Event, Metadata, Subscriber, span};

/// Counts the log lines that begin with a text, and notes the length of the longest.
#[derive(Clone)]
pub struct LogLines {
    begin: &'static str,
    count: Arc<AtomicUsize>,
    longest: Arc<AtomicUsize>,
}

impl LogLines {
    pub fn beginning(begin: &'static str) -> Self {
        Self {
            begin,
            count: Arc::default(),
            longest: Arc::default(),
        }
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The bytes of the longest line with all of its fields.
    pub fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
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
        let (mut begins, mut length) = (false, 0);
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            let value = format!("{value:?}");
            begins |= field.name() == "message" && value.starts_with(self.begin);
            length += field.name().len() + value.len();
        });
        if begins {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.longest.fetch_max(length, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
