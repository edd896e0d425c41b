//! `crowfly validate`: checks a configuration as its clients would read it, without serving it.
//!
//! The control plane's crate knows how gRPC clients read resources, and the agent's crate how node agents do. The
//! command uses both.

mod agents;
mod findings;
mod report;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use crowfly_control::{Checked, ConfigErrors};

use crate::output;
use findings::Finding;
use report::Report;

/// Check configurations as their clients would read them, without serving anything
///
/// Reads each configuration as `crowfly control` would: with all errors of files, services and views. Then it reads the
/// resources as clients do, and names what they would refuse (NACK), in their words, with file, line and column.
///
/// A resource is for gRPC clients if a listener with `api_listener` leads to it. If they refuse it, that is an
/// error; `crowfly control` refuses it too, unless it has --force. A listener without an address is for node agents
/// alone. What other clients may use is a note. Envoy's own rules are not checked: `envoy --mode validate` is Envoy's
/// check of a bootstrap, and `crowfly control` logs what an Envoy refuses.
///
/// Exits with 0 if there is no error, and else with 1.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly validate mesh.yaml
  crowfly validate /etc/crowfly/            # a directory is one configuration
  crowfly validate examples/*.yaml          # each file is one of its own
  helm template mesh | crowfly validate -
  crowfly validate mesh.yaml --json | jq '.configurations[].findings'")]
pub struct ValidateArgs {
    /// Configurations: YAML or JSON files, directories of such files, or - for standard input
    #[arg(value_name = "FILE|DIR|-", required = true)]
    pub configs: Vec<PathBuf>,

    /// Accept files without content, as `crowfly control --allow-empty` does
    #[arg(long, env = "CROWFLY_CONTROL_ALLOW_EMPTY")]
    pub allow_empty: bool,

    /// Accept resources that gRPC clients refuse, as `crowfly control --force` does; they are warnings then
    #[arg(long, env = "CROWFLY_CONTROL_FORCE")]
    pub force: bool,

    /// List the notes: resources that a kind of client would refuse, and that are probably for another one
    #[arg(long)]
    pub notes: bool,

    /// Print one JSON document, with all notes
    #[arg(long)]
    pub json: bool,
}

/// Checks all configurations, and prints the findings. The exit code tells whether there is an error.
pub fn run(args: &ValidateArgs) -> ExitCode {
    let reports: Vec<Report> = args.configs.iter().map(|path| check(path, args)).collect();
    if args.json {
        output::line(report::json(&reports));
    } else {
        for report in &reports {
            report.print(args.notes);
        }
    }
    if reports.iter().all(Report::is_valid) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn check(path: &Path, args: &ValidateArgs) -> Report {
    let read = if path == Path::new("-") {
        standard_input(args.allow_empty)
    } else {
        crowfly_control::check(path, args.allow_empty).map_err(|errors| Finding::of_files(&errors))
    };
    match read {
        Ok(checked) => Report::of(path, &checked, args.force),
        Err(findings) => Report::bad(path, findings),
    }
}

fn standard_input(allow_empty: bool) -> Result<Checked, Vec<Finding>> {
    let name = Path::new("(standard input)");
    let mut text = String::new();
    if let Err(error) = io::stdin().read_to_string(&mut text) {
        return Err(vec![Finding::unreadable(name, &error)]);
    }
    let checked: Result<_, ConfigErrors> = crowfly_control::check_text(name, &text, allow_empty);
    checked.map_err(|errors| Finding::of_files(&errors))
}
