//! The two views of the loads: a screen for a person at a terminal, and tables for pipes and logs,
//! which cannot be redrawn.

use std::{io, time::SystemTime};

use ratatui::{
    style::Stylize,
    text::{Line, Text},
};

use super::table::Table;
use crate::{output, screen::FullScreen};

/// One of the two views.
#[derive(Debug)]
pub(super) enum View {
    /// Tables, one below the other.
    Plain,
    /// A screen that is drawn over and over.
    Screen(FullScreen),
}

impl View {
    pub(super) fn open(draws: bool) -> io::Result<Self> {
        match draws {
            true => FullScreen::open().map(Self::Screen),
            false => Ok(Self::Plain),
        }
    }

    pub(super) fn show(&mut self, table: &Table) -> io::Result<()> {
        match self {
            Self::Plain => {
                let now = humantime::format_rfc3339_seconds(SystemTime::now());
                output::line(format_args!("{now} {table}\n"));
                Ok(())
            }
            Self::Screen(screen) => screen.draw(|frame| {
                let area = frame.area();
                frame.render_widget(text(table, usize::from(area.height)), area);
            }),
        }
    }

    /// Waits until the user quits.
    pub(super) async fn quit(&mut self) {
        match self {
            Self::Plain => std::future::pending().await,
            Self::Screen(screen) => screen.quit().await,
        }
    }
}

/// The table as it fits into `height` lines. The last row shows the number of rows that are left
/// out.
fn text(table: &Table, height: usize) -> Text<'_> {
    let mut lines = vec![Line::from(format!("{}; q quits", table.title)).dim()];
    lines.extend(
        table
            .notes
            .iter()
            .map(|note| Line::from(note.as_str()).bold()),
    );
    if table.rows.is_empty() {
        return Text::from(lines);
    }
    lines.push(Line::from(table.header.as_str()).bold());
    let used = lines.len() + usize::from(table.total.is_some());
    let room = height.saturating_sub(used);
    let shown = match table.rows.len() <= room {
        true => table.rows.len(),
        // One line is for what is left out.
        false => room.saturating_sub(1),
    };
    for row in &table.rows[..shown] {
        let line = Line::from(row.text.as_str());
        lines.push(if row.is_bad { line.red() } else { line });
    }
    match table.rows.len() - shown {
        0 => {}
        more => lines.push(
            Line::from(format!(
                "... {more} more rows: --service NAME or --once shows them"
            ))
            .dim(),
        ),
    }
    lines.extend(table.total.as_deref().map(|total| Line::from(total).bold()));
    Text::from(lines)
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    fn table(rows: usize) -> Table {
        let row = |number: usize| table::Line {
            text: format!("row {number}"),
            is_bad: number == 1,
        };
        Table {
            title: "title".to_owned(),
            notes: vec!["! note".to_owned()],
            header: "HEADER".to_owned(),
            rows: (0..rows).map(row).collect(),
            total: Some("total".to_owned()),
        }
    }

    fn shown(rows: usize, height: usize) -> Vec<String> {
        let table = table(rows);
        text(&table, height)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// A small terminal shows the rows that fit, the sum, and the number of rows that are left out.
    #[test]
    fn the_table_fits_the_terminal() {
        let head = ["title; q quits", "! note", "HEADER"];
        assert_eq!(
            shown(2, 6),
            [&head[..], &["row 0", "row 1", "total"]].concat()
        );
        let more = "... 2 more rows: --service NAME or --once shows them";
        assert_eq!(shown(3, 6), [&head[..], &["row 0", more, "total"]].concat());
        let more = "... 3 more rows: --service NAME or --once shows them";
        assert_eq!(shown(3, 1), [&head[..], &[more, "total"]].concat());
        assert_eq!(shown(0, 6), head[..2]);
    }
}
