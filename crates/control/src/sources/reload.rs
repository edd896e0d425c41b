//! Reads the configuration again when it changes, and publishes the outcome.
//!
//! A bad configuration must not reach clients, so an error is published and the last snapshot
//! stays.

use std::path::PathBuf;
use std::sync::Arc;

use crowfly_source::Event;
use crowfly_source::files::{Document, Files};
use crowfly_source::yaml::ConfigErrors;
use tokio::sync::mpsc;

use super::Configuration;
use super::warnings::Warnings;
use crate::metrics::Trigger;
use crate::store::{Desired, Store};

/// Follows the files of a configuration and publishes their snapshots.
pub(crate) struct Reloader {
    files: Files,
    configuration: Configuration,
    warnings: Warnings,
}

impl Reloader {
    /// Starts to watch before it reads, so that a change between the two is not lost.
    pub(crate) async fn start(
        configuration: Configuration,
    ) -> Result<(Self, Desired), ConfigErrors> {
        let mut files = configuration.driver();
        let events = files.next().await;
        let mut reloader = Self {
            files,
            configuration,
            warnings: Warnings::default(),
        };
        let desired = reloader.translate(events, |result| result).await?;
        Ok((reloader, desired))
    }

    /// Publishes every change to `store`, without end. When `asked`, it reads and publishes even if
    /// nothing changed.
    pub(crate) async fn run(mut self, store: Arc<Store>, mut asked: mpsc::Receiver<()>) {
        loop {
            let (trigger, events) = tokio::select! {
                events = self.files.next() => (Trigger::File, events),
                Some(()) = asked.recv() => (Trigger::Request, self.files.list().await),
            };
            store.triggered(trigger);
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

    /// Translates, and passes the result on, on a thread where both may take long. A panic counts
    /// as an error, and the files are then read from scratch.
    async fn translate<T: Send + 'static>(
        &mut self,
        events: Vec<Event<PathBuf, Document>>,
        then: impl FnOnce(Result<Desired, ConfigErrors>) -> Result<T, ConfigErrors> + Send + 'static,
    ) -> Result<T, ConfigErrors> {
        let afresh = self.configuration.afresh();
        let mut configuration = std::mem::replace(&mut self.configuration, afresh);
        let mut warnings = std::mem::take(&mut self.warnings);
        let done = tokio::task::spawn_blocking(move || {
            let result = configuration.follow(events);
            if result.is_ok() {
                warnings.log(configuration.warnings());
            }
            (then(result), configuration, warnings)
        });
        match done.await {
            Ok((result, configuration, warnings)) => {
                self.configuration = configuration;
                self.warnings = warnings;
                result
            }
            Err(panic) => {
                self.files.start_over();
                Err(self.configuration.error(&panic.to_string()))
            }
        }
    }
}
