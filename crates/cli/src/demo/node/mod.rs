//! `crowfly demo --node`: a control plane and a node agent on this machine, with things broken on purpose.
//!
//! The backends and the client are processes in a network namespace, and the client is in a cgroup that
//! the agent routes. Nothing is simulated: connections go to a ClusterIP that no device has, endpoints
//! come over xDS, and loads go back over LRS.

mod services;
mod stage;
mod steps;
mod tally;
mod verdict;

use std::{process::ExitCode, time::Duration};

use tokio::time::{Instant, interval_at, sleep_until, timeout};

use super::{DemoArgs, DemoError};
use crate::{output, sandbox, signal::Termination};
use services::{CLUSTER_IP, Service};
use stage::Stage;
use tally::{Counts, Tally};
use verdict::{Findings, Verdict};

/// The steps, each with its time as a part of the demo's.
const TIMELINE: [(f64, Step); 7] = [
    (0.10, Step::KillBackend),
    (0.22, Step::ReturnBackend),
    (0.32, Step::MoveToZoneB),
    (0.52, Step::KillAgent),
    (0.62, Step::StartAgent),
    (0.70, Step::KillControl),
    (0.82, Step::StartControl),
];

/// The time that a signal may need to be noticed here, after another process has noticed it.
const SIGNAL_DELAY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    KillBackend,
    ReturnBackend,
    MoveToZoneB,
    KillAgent,
    StartAgent,
    KillControl,
    StartControl,
}

/// Runs the demo of the node agent.
///
/// # Errors
/// Root is missing, or a process failed. Connections that failed are no error, but exit code 1.
pub(super) async fn run(args: &DemoArgs) -> Result<ExitCode, DemoError> {
    let mut termination = Termination::listen().map_err(DemoError::Signals)?;
    let verdict = tokio::select! {
        shown = show(args) => match shown {
            Ok(verdict) => Some(verdict),
            // Ctrl-C ends a child that has no process group of its own yet, and that may be noticed first.
            Err(_) if timeout(SIGNAL_DELAY, termination.recv()).await.is_ok() => None,
            Err(error) => return Err(error),
        },
        // All processes go with the future, and what they used.
        () = termination.recv() => None,
    };
    let left = sandbox::left_over(stage::PURPOSE);
    for path in &left {
        let path = path.display();
        output::line(format_args!(
            "cannot remove {path}; the next demo tries it again"
        ));
    }
    let is_good = left.is_empty() && verdict.as_ref().is_none_or(Verdict::is_good);
    match verdict {
        Some(verdict) => {
            output::line(&verdict);
            if args.json {
                output::line(verdict.to_json());
            }
        }
        None if left.is_empty() => {
            output::line("ended early; everything that the demo made is removed");
        }
        None => output::line("ended early"),
    }
    Ok(match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn show(args: &DemoArgs) -> Result<Verdict, DemoError> {
    let mut demo = Demo {
        stage: Stage::set().await?,
        tally: Tally::default(),
        start: Instant::now(),
        before: Counts::default(),
        findings: Findings::default(),
    };
    demo.introduce(args.rps);
    demo.stage.connect(args.rps, demo.tally.clone()).await?;
    let status = tokio::spawn(show_status(demo.tally.clone(), demo.start));
    let played = demo.play(args.duration).await;
    status.abort();
    played?;
    demo.conclude(args.rps).await?;
    let counts = demo.tally.now();
    Ok(Verdict::new(counts, demo.findings))
}

/// Prints a line of counts every second.
async fn show_status(tally: Tally, start: Instant) {
    let second = Duration::from_secs(1);
    let mut ticks = interval_at(start + second, second);
    let mut before = tally.now();
    loop {
        ticks.tick().await;
        let now = tally.now();
        let rates = Service::new().endpoints.into_iter().map(|endpoint| {
            let name = endpoint.name;
            format!("{name} {:>3}/s", now.since(&before, name))
        });
        let rates: Vec<_> = rates.collect();
        output::line(format_args!(
            "{:6.1} s    {}   ok {}  failed {}",
            start.elapsed().as_secs_f64(),
            rates.join("  "),
            now.ok(),
            now.failed()
        ));
        before = now;
    }
}

struct Demo {
    stage: Stage,
    tally: Tally,
    start: Instant,
    /// The counts when the agent or the control plane was killed.
    before: Counts,
    findings: Findings,
}

impl Demo {
    fn introduce(&self, rps: u32) {
        self.say("a control plane, an agent, and four backends in zones a and b");
        self.say(format!(
            "{rps} connections per second to {CLUSTER_IP}, an address that no device has"
        ));
        self.say(format!("look inside: {}", self.stage.question()));
    }

    async fn play(&mut self, duration: Duration) -> Result<(), DemoError> {
        for (part, step) in TIMELINE {
            sleep_until(self.start + duration.mul_f64(part)).await;
            match step {
                Step::KillBackend => self.kill_backend().await?,
                Step::ReturnBackend => self.return_backend().await?,
                Step::MoveToZoneB => self.move_to_zone_b(duration).await?,
                Step::KillAgent => self.kill_agent().await?,
                Step::StartAgent => self.start_agent().await?,
                Step::KillControl => self.kill_control().await?,
                Step::StartControl => self.start_control().await?,
            }
        }
        sleep_until(self.start + duration).await;
        self.stage.disconnect().await
    }

    /// Takes note of a promise that was broken.
    fn broken(&mut self, what: impl Into<String>) {
        self.findings.broken.push(what.into());
    }

    /// Says that a change is in the maps, or takes note that it is not.
    fn took(&mut self, what: impl Into<String>, taken: Option<Duration>) {
        let what = what.into();
        match taken {
            Some(time) => self.say(format!("{what} after {}", millis(time))),
            None => self.broken(format!("{what}: not so")),
        }
    }

    fn say(&self, text: impl std::fmt::Display) {
        let seconds = self.start.elapsed().as_secs_f64();
        output::line(format_args!("{seconds:6.1} s  * {text}"));
    }
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
