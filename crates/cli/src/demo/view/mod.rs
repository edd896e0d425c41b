//! Two ways to look at the same scene.

mod plain;
mod terminal;

use std::time::Duration;

use plain::Plain;
use terminal::Terminal;

use super::{DemoError, rates::Rates, scene::Scene};
use crate::load::Report;

/// Everything there is to see at one moment.
pub(super) struct Frame<'a> {
    pub(super) scene: &'a Scene,
    pub(super) report: &'a Report,
    pub(super) rates: &'a Rates,
    /// The client's balancing tree, printed.
    pub(super) tree: &'a str,
    pub(super) elapsed: Duration,
    pub(super) duration: Duration,
}

/// Where the demo is shown.
#[derive(Debug)]
pub(super) enum View {
    /// Lines of text.
    Plain(Plain),
    /// A screen that is drawn over and over.
    Terminal(Terminal),
}

impl View {
    pub(super) fn new(plain: bool) -> Result<Self, DemoError> {
        if plain {
            return Ok(Self::Plain(Plain::default()));
        }
        Terminal::open()
            .map(Self::Terminal)
            .map_err(DemoError::Terminal)
    }

    /// How often to look.
    pub(super) fn period(&self) -> Duration {
        match self {
            Self::Plain(_) => Duration::from_secs(1),
            Self::Terminal(_) => Duration::from_millis(200),
        }
    }

    /// Shows what has happened since it was last asked to.
    pub(super) fn news(&mut self, scene: &Scene) {
        match self {
            Self::Plain(plain) => plain.news(scene),
            // It will be drawn with the next frame.
            Self::Terminal(_) => {}
        }
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) -> Result<(), DemoError> {
        match self {
            Self::Plain(plain) => plain.status(frame),
            Self::Terminal(terminal) => terminal.draw(frame).map_err(DemoError::Terminal)?,
        }
        Ok(())
    }

    /// Ends the view. All that happened stays on the terminal, above what comes next.
    pub(super) fn close(self, scene: &Scene) {
        let mut plain = match self {
            Self::Plain(plain) => plain,
            Self::Terminal(terminal) => {
                drop(terminal);
                Plain::default()
            }
        };
        plain.news(scene);
    }

    /// Waits until the user wants to leave.
    pub(super) async fn quit(&mut self) {
        match self {
            Self::Plain(_) => std::future::pending().await,
            Self::Terminal(terminal) => terminal.quit().await,
        }
    }
}
