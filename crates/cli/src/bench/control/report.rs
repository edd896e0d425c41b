//! The result of the benchmark as text and as JSON. Scripts read the JSON form, so its fields stay.

use std::fmt::Write;

use serde::Serialize;

use super::super::Quartiles;
use super::machine::Cores;

/// One figure of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) workload: &'static str,
    pub(super) name: String,
    pub(super) unit: &'static str,
    /// The median over the rounds.
    pub(super) value: f64,
    /// The figure of go-control-plane, measured on another day.
    pub(super) recorded: Option<f64>,
    pub(super) at_most: Option<f64>,
    /// False if the value is more than `at_most`.
    pub(super) met: Option<bool>,
}

impl Figure {
    pub(super) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            workload: "",
            name: name.into(),
            unit,
            value,
            recorded: None,
            at_most: None,
            met: None,
        }
    }

    /// The figure, with that of go-control-plane beside it.
    pub(super) fn recorded(mut self, recorded: f64) -> Self {
        self.recorded = Some(recorded);
        self
    }

    /// The figure with the most that it may be.
    pub(super) fn at_most(mut self, at_most: f64) -> Self {
        self.at_most = Some(at_most);
        self
    }

    /// The median of the same figure in several rounds.
    fn median(rounds: &[&Self]) -> Option<Self> {
        let value = Quartiles::of(rounds.iter().map(|figure| figure.value)).median;
        let first = *rounds.first()?;
        Some(Self {
            value,
            met: first.at_most.map(|most| value <= most),
            ..first.clone()
        })
    }
}

/// Everything that was measured. Scripts rely on its JSON form.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) cores: Cores,
    /// The load average when the run began, of one minute.
    pub(super) load: f64,
    pub(super) rounds: usize,
    /// True if the sizes are those of a smoke test, and say nothing about speed.
    pub(super) quick: bool,
    pub(super) figures: Vec<Figure>,
}

/// The medians of the figures of several rounds.
pub(super) fn medians(workload: &'static str, rounds: &[Vec<Figure>]) -> Vec<Figure> {
    let figures = rounds.first().map_or(0, Vec::len);
    let of = |index: usize| {
        let same: Vec<&Figure> = rounds.iter().filter_map(|round| round.get(index)).collect();
        let median = Figure::median(&same)?;
        Some(Figure { workload, ..median })
    };
    (0..figures).filter_map(of).collect()
}

impl Report {
    pub(super) fn to_json(&self) -> String {
        // The value holds text and numbers only, so JSON can express it.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text.trim_end().to_owned()
    }

    // Writing to a string does not fail.
    fn write(&self, text: &mut String) {
        let Cores { server, clients } = self.cores;
        let _ = write!(text, "server on core {server}, clients on core {clients}");
        if server == clients {
            text.push_str(" (there is only one: the clients slow the server down)");
        }
        let _ = writeln!(
            text,
            ", load {:.1}, median of {} rounds",
            self.load, self.rounds
        );
        if self.quick {
            text.push_str("a smoke test with few clients: these are no figures of speed\n");
        }
        let _ = writeln!(
            text,
            "\n{:<13}{:<42}{:>11} {:<7}{:>18}{:>10}",
            "workload", "figure", "crowfly", "", "go-control-plane*", "at most"
        );
        for figure in &self.figures {
            let Figure {
                workload,
                name,
                unit,
                value,
                recorded,
                at_most,
                met,
            } = figure;
            let or_nothing = |value: &Option<f64>| value.map(rounded).unwrap_or_default();
            let mark = match met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            let line = format!(
                "{workload:<13}{name:<42}{:>11} {unit:<7}{:>18}{:>10} {mark}",
                rounded(*value),
                or_nothing(recorded),
                or_nothing(at_most),
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push_str(
            "\n* recorded on another day on a busy machine with two cores: go-control-plane 2b88c16, \
             Go 1.27.3,\n  GOMAXPROCS=1, the better of its caches, best of 2\n",
        );
    }
}

/// A number with three digits that count.
fn rounded(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        medium if medium < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_is_judged() {
        let round = |value| {
            vec![
                Figure::new("p99", value, "ms")
                    .recorded(475.0)
                    .at_most(237.5),
            ]
        };
        let figures = medians("fan-out", &[round(100.0), round(300.0), round(200.0)]);
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].value, figures[0].met), (200.0, Some(true)));
        assert_eq!(medians("fan-out", &[round(300.0)])[0].met, Some(false));
    }

    #[test]
    fn the_text_says_that_the_other_figures_are_of_another_day() {
        let mut figures = vec![
            Figure::new("p99", 300.0, "ms")
                .recorded(475.0)
                .at_most(237.5),
        ];
        figures[0].met = Some(false);
        let report = Report {
            cores: Cores {
                server: 0,
                clients: 0,
            },
            load: 0.5,
            rounds: 1,
            quick: true,
            figures,
        };
        let text = report.to_text();
        for part in [
            "another day",
            "475",
            "MISSED",
            "there is only one",
            "no figures of speed",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
