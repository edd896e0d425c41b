//! `crowfly bench rpc`: calls through Crowfly's channel compared with calls through tonic's, to
//! show the cost of xDS and balancing.

use std::{num::NonZeroUsize, time::Duration};

use clap::Args;
use serde::Serialize;

use super::{BenchError, Rig, Run, SamplingPlan, compare};
use crate::{args, child::Program, output};

/// Unary calls through crowfly's channel and through tonic's own
///
/// Both balance over four backends in processes of their own, and a control plane configures
/// crowfly's channel. Samples of both alternate. The result is the median of the ratios within
/// pairs, with the interquartile range: 1.00 means as fast as tonic without xDS.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly bench rpc
  crowfly bench rpc --pairs 31 --duration 1s --concurrency 1,16,256 --json")]
pub struct RpcArgs {
    /// The number of pairs of samples to take per concurrency
    #[arg(
        long,
        value_name = "N",
        default_value = "15",
        env = "CROWFLY_BENCH_PAIRS"
    )]
    pub pairs: NonZeroUsize,

    /// The duration of each sample
    #[arg(long, value_name = "DURATION", default_value = "500ms",
          value_parser = args::positive_duration, env = "CROWFLY_BENCH_DURATION")]
    pub duration: Duration,

    /// The number of calls to keep open at once; one run for each number
    #[arg(
        long,
        value_name = "N,...",
        default_value = "1,64",
        value_delimiter = ',',
        env = "CROWFLY_BENCH_CONCURRENCY"
    )]
    pub concurrency: Vec<NonZeroUsize>,

    /// Report as one JSON object
    #[arg(long, env = "CROWFLY_BENCH_JSON")]
    pub json: bool,
}

impl RpcArgs {
    /// The comparison that the flags describe.
    pub fn plan(&self) -> SamplingPlan {
        SamplingPlan {
            pairs: self.pairs,
            sample: self.duration,
            concurrency: self.concurrency.clone(),
        }
    }
}

/// Measures, and prints the result.
///
/// # Errors
/// The servers do not start, or a call fails.
pub async fn run(args: RpcArgs) -> Result<(), BenchError> {
    let rig = Rig::start(&Program::current()?).await?;
    let table = Table::new(args.json);
    let (ours, tonic) = (rig.crowfly()?, rig.tonic()?);
    let runs = compare("tonic", &ours, &tonic, &args.plan(), |run| table.row(run)).await?;
    table.end(runs);
    Ok(())
}

/// Prints runs: as rows while they come, or as one JSON object at the end.
#[derive(Debug)]
pub struct Table {
    json: bool,
}

#[derive(Serialize)]
struct Json {
    runs: Vec<Run>,
}

impl Table {
    /// Prints the head of the table.
    pub fn new(json: bool) -> Self {
        if !json {
            output::line("peer        concurrency     crowfly/s        peer/s   ratio     iqr");
        }
        Self { json }
    }

    /// Prints one row.
    pub fn row(&self, run: &Run) {
        if self.json {
            return;
        }
        let Run {
            peer,
            concurrency,
            rps,
            peer_rps,
            ratio,
            iqr,
        } = run;
        output::line(format_args!(
            "{peer:<10}  {concurrency:>11}  {rps:>12.0}  {peer_rps:>12.0}  {ratio:>6.3}  {iqr:>6.3}"
        ));
    }

    /// Prints the JSON object, if that was asked for.
    pub fn end(&self, runs: Vec<Run>) {
        if self.json {
            output::line(to_json(runs));
        }
    }
}

fn to_json(runs: Vec<Run>) -> String {
    // The value holds text and numbers only, so JSON can express it.
    serde_json::to_string(&Json { runs }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_exactly_the_promised_keys() {
        let run = Run {
            peer: "tonic".to_owned(),
            concurrency: 64,
            rps: 980.0,
            peer_rps: 1000.0,
            ratio: 0.98,
            iqr: 0.02,
        };
        let expected = concat!(
            r#"{"runs":[{"peer":"tonic","concurrency":64,"rps":980.0,"peer_rps":1000.0,"#,
            r#""ratio":0.98,"iqr":0.02}]}"#
        );
        assert_eq!(to_json(vec![run]), expected);
    }
}
