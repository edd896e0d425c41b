//! The live view.

use std::{io, thread};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Paragraph},
};
use tokio::sync::mpsc;

use super::Frame;
use crate::demo::scene::{BackendView, Entry, Status, Zone};

/// A colour per zone.
const COLORS: [Color; 3] = [Color::Cyan, Color::Yellow, Color::Magenta];

/// Room for a backend's name, port, status, rate and count, left and right of its bar.
const BAR_MARGIN: u16 = 42;

/// The terminal, given back when this is dropped.
#[derive(Debug)]
pub(in crate::demo) struct Terminal {
    terminal: DefaultTerminal,
    quit: mpsc::UnboundedReceiver<()>,
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
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

    pub(super) async fn quit(&mut self) {
        if self.quit.recv().await.is_none() {
            // No keyboard; there is still the script's own end.
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.terminal.draw(|screen| render(frame, screen))?;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn render(frame: &Frame<'_>, screen: &mut ratatui::Frame<'_>) {
    let [head, middle, log] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(middle_height(frame)),
        Constraint::Min(3),
    ])
    .areas(screen.area());
    let [backends, tree] =
        Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(middle);
    screen.render_widget(head_of(frame), head);
    screen.render_widget(backends_of(frame, backends), backends);
    screen.render_widget(tree_of(frame), tree);
    screen.render_widget(log_of(&frame.scene.log, log), log);
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

/// Both columns are as high as the higher of them.
fn middle_height(frame: &Frame<'_>) -> u16 {
    let backends: usize = frame
        .scene
        .zones
        .iter()
        .map(|zone| zone.backends.len() + 1)
        .sum();
    let lines = backends.max(frame.tree.lines().count());
    u16::try_from(lines + 2).unwrap_or(u16::MAX)
}

fn head_of(frame: &Frame<'_>) -> Paragraph<'static> {
    let report = frame.report;
    let (elapsed, duration) = (frame.elapsed.as_secs_f64(), frame.duration.as_secs_f64());
    let bad = |count: u64| {
        if count == 0 {
            Style::new().green()
        } else {
            Style::new().red().bold()
        }
    };
    let counts = Line::from(vec![
        Span::raw(format!("sent {}  ok {}  ", report.sent, report.ok)),
        Span::styled(format!("errors {}", report.failed()), bad(report.failed())),
        Span::raw(format!(
            "  lost in flight {}  p50 {:.1} ms  p99 {:.1} ms",
            report.lost_in_flight,
            report.latency_us.unwrap_or_default().p50 as f64 / 1000.0,
            report.latency_us.unwrap_or_default().p99 as f64 / 1000.0,
        )),
    ]);
    let now = frame
        .scene
        .log
        .last()
        .map_or_else(String::new, |entry| entry.text.clone());
    let title = format!(" crowfly demo   xds:///demo   {elapsed:.0} of {duration:.0} s   q quits ");
    Paragraph::new(vec![counts, Line::from(now).bold()]).block(Block::bordered().title(title))
}

fn backends_of(frame: &Frame<'_>, area: Rect) -> Paragraph<'static> {
    let room = usize::from(area.width.saturating_sub(BAR_MARGIN));
    let zones = &frame.scene.zones;
    let rates = zones.iter().flat_map(|zone| &zone.backends);
    let most = rates
        .map(|backend| frame.rates.of(backend.name))
        .fold(1.0, f64::max);
    let mut lines = Vec::new();
    for (zone, color) in zones.iter().zip(COLORS.iter().cycle()) {
        lines.push(zone_line(zone, frame).fg(*color));
        for backend in &zone.backends {
            let length = (frame.rates.of(backend.name) / most * room as f64).round() as usize;
            lines.push(backend_line(backend, frame, length, room, *color));
        }
    }
    Paragraph::new(lines).block(Block::bordered().title(" backends "))
}

fn zone_line(zone: &Zone, frame: &Frame<'_>) -> Line<'static> {
    let rate: f64 = zone
        .backends
        .iter()
        .map(|backend| frame.rates.of(backend.name))
        .sum();
    let total: u64 = zone
        .backends
        .iter()
        .map(|backend| total(backend, frame))
        .sum();
    Line::from(format!(
        "zone {}  weight {}  {rate:.0}/s  {total} calls",
        zone.name, zone.weight
    ))
    .bold()
}

fn backend_line(
    backend: &BackendView,
    frame: &Frame<'_>,
    length: usize,
    room: usize,
    color: Color,
) -> Line<'static> {
    let status = match backend.status {
        Status::Up => Style::new().green(),
        Status::Draining => Style::new().yellow(),
        Status::Killed | Status::Stopped => Style::new().red(),
    };
    Line::from(vec![
        Span::raw(format!("  {} ", backend.name)),
        Span::styled(format!(":{:<5} ", backend.addr.port()), Style::new().dim()),
        Span::styled(format!("{:<9}", backend.status), status),
        Span::styled(
            format!("{:<room$}", "█".repeat(length)),
            Style::new().fg(color),
        ),
        Span::raw(format!(
            " {:>5.0}/s {:>7}",
            frame.rates.of(backend.name),
            total(backend, frame)
        )),
    ])
}

fn total(backend: &BackendView, frame: &Frame<'_>) -> u64 {
    frame
        .report
        .by_backend
        .get(backend.name)
        .copied()
        .unwrap_or(0)
}

fn tree_of(frame: &Frame<'_>) -> Paragraph<'static> {
    let title = " the client's balancing tree ";
    Paragraph::new(frame.tree.to_owned()).block(Block::bordered().title(title))
}

/// The newest entries that fit, the newest last.
fn log_of(log: &[Entry], area: Rect) -> Paragraph<'static> {
    let room = usize::from(area.height.saturating_sub(2));
    let recent = &log[log.len().saturating_sub(room)..];
    let line = |entry: &Entry| {
        let at = Span::styled(
            format!("{:6.1} s  ", entry.at.as_secs_f64()),
            Style::new().dim(),
        );
        Line::from(vec![at, Span::raw(entry.text.clone())])
    };
    let lines: Vec<_> = recent.iter().map(line).collect();
    Paragraph::new(lines).block(Block::bordered().title(" what happens "))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        time::{Duration, Instant},
    };

    use ratatui::backend::TestBackend;

    use super::*;
    use crate::{
        demo::{rates::Rates, scene::Scene},
        load::Stats,
    };

    /// The screen, as text.
    fn screen(width: u16, height: u16) -> String {
        let addr = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let start = Instant::now();
        let backend = |name, port, status| BackendView {
            name,
            addr: addr(port),
            status,
        };
        let backends = vec![
            backend("a1", 1001, Status::Up),
            backend("a2", 1002, Status::Killed),
        ];
        let mut scene = Scene {
            start,
            zones: vec![Zone {
                name: "a",
                weight: 3,
                backends,
            }],
            log: Vec::new(),
        };
        scene.say("a2: SIGKILL");
        let mut rates = Rates::default();
        rates.add(start, BTreeMap::new());
        rates.add(
            start + Duration::from_secs(1),
            BTreeMap::from([("a1".to_owned(), 40)]),
        );
        let frame = Frame {
            scene: &scene,
            report: &Stats::new().report(),
            rates: &rates,
            tree: "cluster demo READY",
            elapsed: Duration::from_secs(3),
            duration: Duration::from_secs(60),
        };
        let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|screen| render(&frame, screen)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_shows_backends_zones_tree_and_events() {
        let screen = screen(80, 24);
        for expected in [
            "3 of 60 s",
            "errors 0  lost in flight 0",
            "zone a  weight 3  40/s",
            "a1 :1001  up       ██████    40/s",
            "a2 :1002  killed              0/s",
            "cluster demo READY",
            "0.0 s  a2: SIGKILL",
        ] {
            assert!(
                screen.contains(expected),
                "{expected:?} is not in\n{screen}"
            );
        }
    }

    #[test]
    fn a_tiny_terminal_shows_what_fits() {
        for (width, height) in [(1, 1), (10, 3), (40, 8)] {
            screen(width, height);
        }
    }
}
