//! The table of loads as lines of text. It is plain text, because a screen and a pipe both print it.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use crowfly_control::loads::{LoadRow, Loads};

use crate::{error::chain, output::printable};

const NOTHING: &str = "-";

/// The columns after the names, which hold numbers.
const NUMBERS: [&str; 7] = [
    "CALLS/S",
    "IN FLIGHT",
    "ERRORS/S",
    "DROPS/S",
    "CALLS",
    "ERRORS",
    "DROPS",
];

/// The lines of a table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) title: String,
    /// Problems, each on a line of its own.
    pub(super) notes: Vec<String>,
    pub(super) header: String,
    pub(super) rows: Vec<Line>,
    /// The sum of all rows; `None` if there are less than two.
    pub(super) total: Option<String>,
}

/// The line of a row.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) text: String,
    /// True if calls fail or are dropped now.
    pub(super) is_bad: bool,
}

impl Table {
    /// The table of `loads`, which are those of the given services, or of all if there are none.
    pub(super) fn new(loads: &Loads, services: &[String]) -> Self {
        let has_clusters = loads.rows.iter().any(|row| row.cluster != row.service);
        let mut cells = vec![header(has_clusters)];
        cells.extend(loads.rows.iter().map(|row| cells_of(row, has_clusters)));
        if loads.rows.len() > 1 {
            cells.push(total_of(&loads.rows, has_clusters));
        }
        let mut lines = aligned(&cells).into_iter();
        let header = lines.next().unwrap_or_default();
        let rows = loads.rows.iter().zip(lines.by_ref());
        let rows = rows.map(|(row, text)| Line {
            text,
            is_bad: row.errors_per_second > 0.0 || row.drops_per_second > 0.0,
        });
        Self {
            title: title(loads),
            notes: notes(loads, services),
            header,
            rows: rows.collect(),
            total: lines.next(),
        }
    }

    /// Notes that the loads could not be read again.
    pub(super) fn fail(&mut self, error: &(dyn std::error::Error + 'static)) {
        self.notes = vec![format!("! these figures are old: {}", chain(error))];
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        let notes = self.notes.iter().map(String::as_str);
        let rows = self.rows.iter().map(|line| line.text.as_str());
        let table = [self.header.as_str()].into_iter().chain(rows);
        let table = table.filter(|_| !self.rows.is_empty());
        for line in notes.chain(table).chain(self.total.as_deref()) {
            write!(f, "\n{line}")?;
        }
        Ok(())
    }
}

fn title(loads: &Loads) -> String {
    let clients = match loads.reporters.len() {
        0 => "no client reports".to_owned(),
        1 => "1 client reports".to_owned(),
        many => format!("{many} clients report"),
    };
    let seconds = |seconds: f64| {
        let whole = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        humantime::format_duration(Duration::from_secs(whole.as_secs())).to_string()
    };
    format!(
        "{clients} loads, every {}; totals of {}",
        seconds(loads.interval_seconds),
        seconds(loads.up_seconds)
    )
}

fn notes(loads: &Loads, services: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if loads.refused_reports > 0 {
        let refused = loads.refused_reports;
        notes.push(format!(
            "! {refused} bad reports were refused; the log of the control plane has the reasons"
        ));
    }
    if loads.refused_rows > 0 {
        let refused = loads.refused_rows;
        notes.push(format!(
            "! {refused} figures were not kept, because there are too many rows"
        ));
    }
    if loads.rows.is_empty() {
        notes.push(match services {
            [] => "no loads yet".to_owned(),
            services => format!("no loads of {} yet", printable(&services.join(" or "))),
        });
    }
    notes
}

fn header(has_clusters: bool) -> Vec<String> {
    let names = ["SERVICE", "CLUSTER", "CLIENTS IN", "BACKENDS IN"];
    let names = names
        .iter()
        .filter(|name| has_clusters || **name != "CLUSTER");
    names.chain(&NUMBERS).map(ToString::to_string).collect()
}

fn cells_of(row: &LoadRow, has_clusters: bool) -> Vec<String> {
    let backends = row.backend_locality.as_deref();
    let mut cells = vec![printable(&row.service)];
    if has_clusters {
        cells.push(printable(&row.cluster));
    }
    cells.push(locality(&row.client_locality));
    cells.push(backends.map_or_else(|| "(dropped)".to_owned(), locality));
    // A row has calls or drops, and never both.
    let [calls, drops] = [backends.is_some(), backends.is_none()];
    cells.extend([
        cell(calls, format_args!("{:.1}", row.calls_per_second)),
        cell(calls, row.in_progress),
        cell(calls, format_args!("{:.1}", row.errors_per_second)),
        cell(drops, format_args!("{:.1}", row.drops_per_second)),
        cell(calls, row.issued),
        cell(calls, row.errors),
        cell(drops, row.dropped),
    ]);
    cells
}

fn total_of(rows: &[LoadRow], has_clusters: bool) -> Vec<String> {
    let rate = |of: fn(&LoadRow) -> f64| format!("{:.1}", rows.iter().map(of).sum::<f64>());
    let count = |of: fn(&LoadRow) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
    let mut cells = vec!["total".to_owned()];
    cells.resize(if has_clusters { 4 } else { 3 }, String::new());
    cells.extend([
        rate(|row| row.calls_per_second),
        count(|row| row.in_progress).to_string(),
        rate(|row| row.errors_per_second),
        rate(|row| row.drops_per_second),
        count(|row| row.issued).to_string(),
        count(|row| row.errors).to_string(),
        count(|row| row.dropped).to_string(),
    ]);
    cells
}

fn cell(has_value: bool, value: impl Display) -> String {
    match has_value {
        true => value.to_string(),
        false => NOTHING.to_owned(),
    }
}

fn locality(text: &str) -> String {
    match text {
        "" => "(no locality)".to_owned(),
        text => printable(text),
    }
}

/// The rows as lines: names to the left of their columns, numbers to the right.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let names = columns.saturating_sub(NUMBERS.len());
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column < names {
            true => format!("{cell:width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(service: &str, client: &str, backend: Option<&str>) -> LoadRow {
        LoadRow {
            service: service.to_owned(),
            cluster: service.to_owned(),
            client_locality: client.to_owned(),
            backend_locality: backend.map(str::to_owned),
            ..LoadRow::default()
        }
    }

    fn loads() -> Loads {
        Loads {
            up_seconds: 3723.4,
            interval_seconds: 10.0,
            reporters: vec![Default::default(); 2],
            rows: vec![
                LoadRow {
                    issued: 1_000,
                    succeeded: 900,
                    errors: 90,
                    in_progress: 10,
                    calls_per_second: 12.34,
                    errors_per_second: 0.5,
                    ..row("pay", "", Some("eu/a"))
                },
                LoadRow {
                    dropped: 7,
                    drops_per_second: 0.0,
                    ..row("shop", "eu/a", None)
                },
                LoadRow {
                    issued: 5,
                    succeeded: 5,
                    ..row("shop", "eu/a", Some("\u{1b}[31m"))
                },
            ],
            ..Loads::default()
        }
    }

    /// The table shows calls and drops by zone, and no control characters of a client.
    #[test]
    fn rows_are_aligned() {
        let table = Table::new(&loads(), &[]);
        let expected = "\
2 clients report loads, every 10s; totals of 1h 2m 3s
SERVICE  CLIENTS IN     BACKENDS IN  CALLS/S  IN FLIGHT  ERRORS/S  DROPS/S  CALLS  ERRORS  DROPS
pay      (no locality)  eu/a            12.3         10       0.5        -   1000      90      -
shop     eu/a           (dropped)          -          -         -      0.0      -       -      7
shop     eu/a           \\u{1b}[31m       0.0          0       0.0        -      5       0      -
total                                   12.3         10       0.5      0.0   1005      90      7";
        assert_eq!(table.to_string(), expected);
        let bad: Vec<_> = table.rows.iter().map(|line| line.is_bad).collect();
        assert_eq!(bad, [true, false, false]);
    }

    /// The cluster is shown where it is not the service.
    #[test]
    fn clusters_are_shown_if_they_differ() {
        let mut loads = loads();
        loads.rows.truncate(1);
        loads.rows[0].cluster = "pay/endpoints".to_owned();
        let expected = "\
2 clients report loads, every 10s; totals of 1h 2m 3s
SERVICE  CLUSTER        CLIENTS IN     BACKENDS IN  CALLS/S  IN FLIGHT  ERRORS/S  DROPS/S  CALLS  ERRORS  DROPS
pay      pay/endpoints  (no locality)  eu/a            12.3         10       0.5        -   1000      90      -";
        assert_eq!(Table::new(&loads, &[]).to_string(), expected);
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let mut loads = Loads {
            interval_seconds: 10.0,
            ..Loads::default()
        };
        let table = Table::new(&loads, &[]).to_string();
        assert_eq!(
            table,
            "no client reports loads, every 10s; totals of 0s\nno loads yet"
        );
        loads.refused_reports = 3;
        loads.refused_rows = 4;
        let mut table = Table::new(&loads, &["shop".to_owned()]);
        let expected = [
            "! 3 bad reports were refused; the log of the control plane has the reasons",
            "! 4 figures were not kept, because there are too many rows",
            "no loads of shop yet",
        ];
        assert_eq!(table.notes, expected);
        table.fail(&std::io::Error::other("connection refused"));
        assert_eq!(table.notes, ["! these figures are old: connection refused"]);
    }
}
