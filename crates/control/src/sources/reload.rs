//! Reads the configuration again when it changes, and publishes what came of it.

use std::path::PathBuf;
use std::sync::Arc;

use crowfly_source::Event;
use crowfly_source::files::{Document, Files};
use crowfly_xds::Snapshot;
use tokio::sync::mpsc;
use tracing::warn;

use super::Configuration;
use crate::error::ConfigErrors;
use crate::store::Store;

/// Follows files and publishes what they say.
pub(crate) struct Reloader {
    files: Files,
    configuration: Configuration,
}

impl Reloader {
    /// Starts to watch, then reads: a change between the two is not lost.
    pub(crate) async fn start(
        configuration: Configuration,
    ) -> Result<(Self, Snapshot), ConfigErrors> {
        let mut files = configuration.driver();
        let events = files.next().await;
        let mut reloader = Self {
            files,
            configuration,
        };
        let snapshot = reloader.translate(events, |result| result).await?;
        Ok((reloader, snapshot))
    }

    /// Publishes every change to `store`, for ever. When `asked` to, it reads and tells even if
    /// nothing changed.
    pub(crate) async fn run(mut self, store: Arc<Store>, mut asked: mpsc::Receiver<()>) {
        loop {
            let events = tokio::select! {
                events = self.files.next() => events,
                Some(()) = asked.recv() => self.files.list().await,
            };
            let publisher = Arc::clone(&store);
            let published = self.translate(events, move |result| {
                publisher.reloaded(result);
                Ok(())
            });
            if let Err(panicked) = published.await {
                store.reloaded(Err(panicked));
            }
        }
    }

    /// Translates, and does something with the result, where both may take a while. If that panics, it
    /// is one more error, and files are followed on from scratch.
    async fn translate<T: Send + 'static>(
        &mut self,
        events: Vec<Event<PathBuf, Document>>,
        then: impl FnOnce(Result<Snapshot, ConfigErrors>) -> Result<T, ConfigErrors> + Send + 'static,
    ) -> Result<T, ConfigErrors> {
        let afresh = self.configuration.afresh();
        let mut configuration = std::mem::replace(&mut self.configuration, afresh);
        let done = tokio::task::spawn_blocking(move || {
            let result = configuration.follow(events);
            if result.is_ok() {
                for warning in configuration.warnings() {
                    warn!("{warning}");
                }
            }
            (then(result), configuration)
        });
        match done.await {
            Ok((result, configuration)) => {
                self.configuration = configuration;
                result
            }
            Err(panic) => {
                self.files.start_over();
                Err(self.configuration.error(&panic.to_string()))
            }
        }
    }
}
