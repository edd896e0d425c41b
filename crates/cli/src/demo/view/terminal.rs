//! The view for a terminal: bars for the backends, the client's balancing tree, and the events.
//!
//! The whole screen is drawn again five times a second, because the rates change all the time.

use std::io;

use ratatui::{
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Paragraph},
};

use super::Frame;
use crate::{
    demo::{
        command::own_latency,
        state::{BackendView, LogLine, Status, Zone},
    },
    screen::FullScreen,
};

/// A colour per zone.
const COLORS: [Color; 3] = [Color::Cyan, Color::Yellow, Color::Magenta];

/// The columns that a backend's name, port, status, rate and count take beside its bar.
const BAR_MARGIN: u16 = 42;

/// The least width of a terminal that shows the client's tree beside the backends.
const TREE_WIDTH: u16 = 100;

/// The width of the tree. The longest line of the tree is a leaf cluster with its limit and calls.
const TREE_PANE: u16 = 54;

/// The rows that the events keep, frame included.
const LOG_HEIGHT: usize = 9;

/// The width of an event's time.
const TIME_WIDTH: usize = 10;

/// Draws a frame on the whole terminal.
pub(super) fn draw(frame: &Frame<'_>, screen: &mut FullScreen) -> io::Result<()> {
    screen.draw(|screen| render(frame, screen))
}

fn render(frame: &Frame<'_>, screen: &mut ratatui::Frame<'_>) {
    let area = screen.area();
    let has_tree = area.width >= TREE_WIDTH;
    let [head, middle, log] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(middle_height(frame, area.height, has_tree)),
        Constraint::Min(3),
    ])
    .areas(area);
    let tree_width = if has_tree { TREE_PANE } else { 0 };
    let [backends, tree] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(tree_width)]).areas(middle);
    screen.render_widget(head_of(frame), head);
    screen.render_widget(backends_of(frame, backends, has_tree), backends);
    if has_tree {
        screen.render_widget(tree_of(frame), tree);
    }
    screen.render_widget(log_of(&frame.state.log, log), log);
}

/// The height of both columns. The height is that of the higher column, but leaves the events their
/// rows.
fn middle_height(frame: &Frame<'_>, height: u16, has_tree: bool) -> u16 {
    let zones = frame.state.zones.iter();
    let backends: usize = zones.map(|zone| zone.backends.len() + 1).sum();
    let tree = match has_tree {
        true => frame.tree.lines().count(),
        false => 0,
    };
    let room = usize::from(height).saturating_sub(4 + LOG_HEIGHT);
    let lines = (tree + 2).min(room).max(backends + 2);
    u16::try_from(lines).unwrap_or(u16::MAX)
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
        Span::raw(format!("  lost in flight {}", report.lost_in_flight)),
    ]);
    let latency = report.latency_us.map_or_else(String::new, |latency| {
        let [p50, p99] = [latency.p50, latency.p99].map(|micros| micros as f64 / 1000.0);
        format!("p50 {p50:.1} ms  p99 {p99:.1} ms  ({})", own_latency())
    });
    let title = format!(" crowfly demo   xds:///demo   {elapsed:.0} of {duration:.0} s   q quits ");
    Paragraph::new(vec![counts, Line::from(latency)]).block(Block::bordered().title(title))
}

fn backends_of(frame: &Frame<'_>, area: Rect, has_tree: bool) -> Paragraph<'static> {
    let room = usize::from(area.width.saturating_sub(BAR_MARGIN));
    let zones = &frame.state.zones;
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
    let title = match has_tree {
        true => " backends ".to_owned(),
        false => {
            format!(" backends (with {TREE_WIDTH} columns, also the client's balancing tree) ")
        }
    };
    Paragraph::new(lines).block(Block::bordered().title(title))
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

/// The newest lines that fit, the newest last.
fn log_of(log: &[LogLine], area: Rect) -> Paragraph<'static> {
    let width = usize::from(area.width)
        .saturating_sub(2 + TIME_WIDTH)
        .max(1);
    let room = usize::from(area.height.saturating_sub(2));
    let mut lines = Vec::new();
    for entry in log {
        let mut time = format!("{:6.1} s  ", entry.at.as_secs_f64());
        for part in wrapped(&entry.text, width) {
            let at = Span::styled(format!("{time:TIME_WIDTH$}"), Style::new().dim());
            lines.push(Line::from(vec![at, Span::raw(part)]));
            time.clear();
        }
    }
    let recent = lines.split_off(lines.len().saturating_sub(room));
    Paragraph::new(recent).block(Block::bordered().title(" what happens "))
}

/// `text` in lines of at most `width` characters, broken between words where that can be.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word.to_owned();
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        while word.chars().count() > width {
            let rest = word.chars().skip(width).collect();
            let part = word.chars().take(width).collect();
            lines.push(part);
            lines.push(String::new());
            word = rest;
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
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
        demo::{rates::Rates, state::DemoState},
        load::{Outcome, Stats},
    };

    /// The text on the screen.
    fn screen(width: u16, height: u16) -> String {
        screen_of(width, height, "cluster demo READY")
    }

    fn screen_of(width: u16, height: u16, tree: &str) -> String {
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
        let mut state = DemoState {
            start,
            zones: vec![Zone {
                name: "a",
                weight: 3,
                backends,
            }],
            log: Vec::new(),
        };
        state.say("a2: SIGKILL");
        state.say(format!(
            "NACK from the client: {}the end",
            "a long reason ".repeat(9)
        ));
        let mut rates = Rates::default();
        rates.add(start, BTreeMap::new());
        rates.add(
            start + Duration::from_secs(1),
            BTreeMap::from([("a1".to_owned(), 40)]),
        );
        let stats = Stats::new();
        stats.sent();
        let backend = "a1".to_owned();
        stats.ended(Outcome::Ok { backend }, Duration::from_millis(21));
        let frame = Frame {
            state: &state,
            report: &stats.report(),
            rates: &rates,
            tree,
            elapsed: Duration::from_secs(3),
            duration: Duration::from_secs(60),
        };
        let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|screen| render(&frame, screen)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_shows_backends_zones_and_events() {
        let screen = screen(80, 24);
        for expected in [
            "3 of 60 s",
            "errors 0  lost in flight 0",
            "p50 21.0 ms  p99 21.0 ms  (20 ms of each latency are the backends' own)",
            "zone a  weight 3  40/s",
            "a1 :1001  up       ████████",
            "a2 :1002  killed",
            "0.0 s  a2: SIGKILL",
            "0.0 s  NACK from the client: a long reason",
            "the end",
        ] {
            assert!(
                screen.contains(expected),
                "{expected:?} is not in\n{screen}"
            );
        }
    }

    /// The tree of six backends in three zones is about as long as this.
    #[test]
    fn a_wide_screen_shows_the_tree_and_leaves_room_for_events() {
        let tree: Vec<_> = (0..40).map(|line| format!("node {line} READY")).collect();
        for (width, height) in [(100, 24), (120, 40)] {
            let screen = screen_of(width, height, &tree.join("\n"));
            for expected in [
                "node 0 READY",
                "node 8 READY",
                "a2 :1002",
                "SIGKILL",
                "the end",
            ] {
                assert!(
                    screen.contains(expected),
                    "{expected:?} is not in\n{screen}"
                );
            }
        }
    }

    #[test]
    fn long_events_are_wrapped_between_words() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrapped("", 3), [""; 0]);
    }

    #[test]
    fn a_tiny_terminal_shows_what_fits() {
        for (width, height) in [(1, 1), (10, 3), (40, 8)] {
            screen(width, height);
        }
    }
}
