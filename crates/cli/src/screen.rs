//! The abilities of the terminal, the environment variables by which its user limits them, and the
//! whole terminal as a screen.

use std::{
    env,
    ffi::{OsStr, OsString},
    io, thread,
};

use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyModifiers},
    style::Color,
};
use tokio::sync::mpsc;

/// The terminal in raw mode. Dropping this restores it.
#[derive(Debug)]
pub(crate) struct FullScreen {
    terminal: DefaultTerminal,
    quit: mpsc::UnboundedReceiver<()>,
}

impl FullScreen {
    pub(crate) fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (sender, quit) = mpsc::unbounded_channel();
        // Reading keys blocks. The thread ends with the process.
        thread::spawn(move || {
            while let Ok(event) = event::read() {
                if wants_to_quit(&event) && sender.send(()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { terminal, quit })
    }

    /// Waits until the user quits.
    pub(crate) async fn quit(&mut self) {
        if self.quit.recv().await.is_none() {
            // There is no keyboard. A signal still ends the command.
            std::future::pending::<()>().await;
        }
    }

    /// Draws the whole screen again, without colours if the user wants none.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let has_colors = has_colors();
        self.terminal.draw(|screen| {
            render(screen);
            if !has_colors {
                bleach(screen);
            }
        })?;
        Ok(())
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Removes the colours. Bold and dim stay.
fn bleach(screen: &mut Frame<'_>) {
    for cell in &mut screen.buffer_mut().content {
        cell.fg = Color::Reset;
        cell.bg = Color::Reset;
    }
}

fn wants_to_quit(event: &Event) -> bool {
    let Event::Key(key) = event else {
        return false;
    };
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

/// True if the terminal understands plain text only (`TERM=dumb`), as that of an editor.
pub(crate) fn is_dumb() -> bool {
    means_dumb(env::var_os("TERM").as_deref())
}

/// True if the terminal shows colours and its user wants them.
pub(crate) fn has_colors() -> bool {
    !refuses_colors(env::var_os("NO_COLOR")) && !is_dumb()
}

/// The rule of <https://no-color.org>: any value but the empty one asks for no colours.
fn refuses_colors(no_color: Option<OsString>) -> bool {
    no_color.is_some_and(|value| !value.is_empty())
}

fn means_dumb(term: Option<&OsStr>) -> bool {
    term == Some(OsStr::new("dumb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides() {
        assert!(refuses_colors(Some("1".into())));
        assert!(!refuses_colors(Some("".into())));
        assert!(!refuses_colors(None));
        assert!(means_dumb(Some("dumb".as_ref())));
        assert!(!means_dumb(Some("xterm".as_ref())));
        assert!(!means_dumb(None));
    }
}
