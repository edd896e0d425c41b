//! The two views of the demo: a screen for a person at a terminal, and lines for pipes and logs,
//! which cannot be redrawn.

mod plain;
mod terminal;

use std::time::Duration;

use super::{DemoError, rates::Rates, state::DemoState};
use crate::{load::Report, screen::FullScreen};
use plain::Plain;

/// The values that a view shows at one moment.
pub(super) struct Frame<'a> {
    pub(super) state: &'a DemoState,
    pub(super) report: &'a Report,
    pub(super) rates: &'a Rates,
    /// The client's balancing tree, printed.
    pub(super) tree: &'a str,
    pub(super) elapsed: Duration,
    pub(super) duration: Duration,
}

/// One of the two views.
#[derive(Debug)]
pub(super) enum View {
    /// Lines of text.
    Plain(Plain),
    /// A screen that is drawn over and over.
    Terminal(FullScreen),
}

impl View {
    pub(super) fn new(plain: bool) -> Result<Self, DemoError> {
        if plain {
            return Ok(Self::Plain(Plain::default()));
        }
        FullScreen::open()
            .map(Self::Terminal)
            .map_err(DemoError::Terminal)
    }

    /// The time between two frames.
    pub(super) fn period(&self) -> Duration {
        match self {
            Self::Plain(_) => Duration::from_secs(1),
            Self::Terminal(_) => Duration::from_millis(200),
        }
    }

    /// Shows the events since the last call of this method.
    pub(super) fn news(&mut self, state: &DemoState) {
        match self {
            Self::Plain(plain) => plain.news(state),
            // The next frame draws them.
            Self::Terminal(_) => {}
        }
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) -> Result<(), DemoError> {
        match self {
            Self::Plain(plain) => plain.status(frame),
            Self::Terminal(screen) => {
                terminal::draw(frame, screen).map_err(DemoError::Terminal)?;
            }
        }
        Ok(())
    }

    /// Ends the view. The events stay on the terminal, above the report.
    pub(super) fn close(self, state: &DemoState) {
        let mut plain = match self {
            Self::Plain(plain) => plain,
            Self::Terminal(terminal) => {
                drop(terminal);
                Plain::default()
            }
        };
        plain.news(state);
    }

    /// Waits until the user quits.
    pub(super) async fn quit(&mut self) {
        match self {
            Self::Plain(_) => std::future::pending().await,
            Self::Terminal(terminal) => terminal.quit().await,
        }
    }
}
