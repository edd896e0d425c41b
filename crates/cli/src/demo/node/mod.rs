//! `crowfly demo --node`: the node agent on this machine, with things broken on purpose.
//!
//! The backends and the client are processes in a network namespace, and the client is in a cgroup that
//! the agent routes. Nothing is simulated: connections go to a ClusterIP that no device has.

mod services;
mod stage;
mod tally;
mod verdict;

use std::{process::ExitCode, time::Duration};

use tokio::time::{Instant, interval_at, sleep, sleep_until};

use super::{DemoArgs, DemoError};
use crate::{output, signal::Termination};
use services::{CLUSTER_IP, bad_file};
use stage::Stage;
use tally::{Counts, Tally};
use verdict::{Findings, Verdict};

/// The time in which the client's report of a connection comes in.
const REPORT: Duration = Duration::from_millis(250);

/// The backend that dies.
const VICTIM: usize = 1;

/// The steps, each with its time as a part of the demo's.
const TIMELINE: [(f64, Step); 7] = [
    (0.10, Step::KillBackend),
    (0.25, Step::ReturnBackend),
    (0.35, Step::MoveToZoneB),
    (0.55, Step::KillAgent),
    (0.70, Step::StartAgent),
    (0.80, Step::BadFile),
    (0.88, Step::Heal),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    KillBackend,
    ReturnBackend,
    MoveToZoneB,
    KillAgent,
    StartAgent,
    BadFile,
    Heal,
}

/// Runs the demo of the node agent.
///
/// # Errors
/// Root is missing, or a process failed. Connections that failed are no error, but exit code 1.
pub(super) async fn run(args: &DemoArgs) -> Result<ExitCode, DemoError> {
    let mut termination = Termination::listen().map_err(DemoError::Signals)?;
    let verdict = tokio::select! {
        verdict = show(args) => verdict?,
        // All processes go with the future, and what they used.
        () = termination.recv() => return Ok(ExitCode::SUCCESS),
    };
    output::line(&verdict);
    if args.json {
        output::line(verdict.to_json());
    }
    Ok(match verdict.is_good() {
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
        let rates = services::endpoints().into_iter().map(|endpoint| {
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
    /// The counts when the agent was killed.
    before: Counts,
    findings: Findings,
}

impl Demo {
    fn introduce(&self, rps: u32) {
        self.say("an agent, and four backends in zones a and b, in a network namespace");
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
                Step::BadFile => self.bad_file().await?,
                Step::Heal => self.heal().await?,
            }
        }
        sleep_until(self.start + duration).await;
        self.stage.disconnect().await
    }

    async fn kill_backend(&mut self) -> Result<(), DemoError> {
        let name = self.stage.endpoints[VICTIM].name;
        let failed = self.tally.now().failed();
        self.stage.kill_backend(VICTIM).await?;
        self.say(format!("{name}: SIGKILL; the file lists it still"));
        sleep(REPORT).await;
        self.stage.endpoints[VICTIM].is_listed = false;
        let taken = self.stage.apply().await?;
        sleep(REPORT).await;
        let failed = self.tally.now().failed() - failed;
        self.findings.on_killed += failed;
        self.took(format!("{name}: out of the file, and of the maps"), taken);
        self.say(format!(
            "{name}: {failed} connections were refused until then"
        ));
        Ok(())
    }

    async fn return_backend(&mut self) -> Result<(), DemoError> {
        let name = self.stage.endpoints[VICTIM].name;
        self.stage.start_backend(VICTIM).await?;
        self.stage.endpoints[VICTIM].is_listed = true;
        let before = self.tally.now();
        let taken = self.stage.apply().await?;
        self.took(format!("{name}: started again, and in the maps"), taken);
        sleep(REPORT).await;
        if self.tally.now().since(&before, name) == 0 {
            let broken = format!("{name} returned and got no connection");
            self.findings.broken.push(broken);
        }
        Ok(())
    }

    async fn move_to_zone_b(&mut self, duration: Duration) -> Result<(), DemoError> {
        for endpoint in &mut self.stage.endpoints {
            endpoint.weight = if endpoint.zone == "b" { 9 } else { 1 };
        }
        let taken = self.stage.apply().await?;
        self.took("weights: zone a 1, zone b 9; in the maps", taken);
        sleep(REPORT).await;
        let before = self.tally.now();
        sleep(duration.mul_f64(0.12)).await;
        let now = self.tally.now();
        let to_b = now.since(&before, "b1") + now.since(&before, "b2");
        let share = to_b as f64 / (now.ok() - before.ok()).max(1) as f64;
        self.say(format!("zone b gets {:.0} % of connections", 100.0 * share));
        // 9 of 10 are expected. Chance moves the share of 100 connections by 0.1 once in a thousand runs.
        if !(0.8..=1.0).contains(&share) {
            let broken = format!("zone b should get 90 % of connections, got {share:.2}");
            self.findings.broken.push(broken);
        }
        Ok(())
    }

    async fn kill_agent(&mut self) -> Result<(), DemoError> {
        self.before = self.tally.now();
        self.stage.kill_agent().await?;
        self.say("the agent: SIGKILL; programs and maps are pinned, so connections are routed on");
        Ok(())
    }

    async fn start_agent(&mut self) -> Result<(), DemoError> {
        let now = self.tally.now();
        let (ok, failed) = (
            now.ok() - self.before.ok(),
            now.failed() - self.before.failed(),
        );
        self.findings.without_agent = ok;
        self.say(format!(
            "without an agent: {ok} connections ok, {failed} failed"
        ));
        if ok == 0 {
            let broken = "no connection was routed while the agent was down";
            self.findings.broken.push(broken.to_owned());
        }
        let begin = Instant::now();
        self.stage.start_agent().await?;
        self.say(format!(
            "the agent: started again, and routes after {}",
            millis(begin.elapsed())
        ));
        Ok(())
    }

    async fn bad_file(&mut self) -> Result<(), DemoError> {
        self.stage.write(&bad_file(&self.stage.endpoints))?;
        self.say("a bad file: port 80000");
        let is_refused = |status: &str| status.starts_with("failed");
        let refused = self.stage.until(|view| {
            let mut sources = view.sources.iter();
            sources.any(|source| is_refused(&source.status))
        });
        if refused.await?.is_none() {
            self.findings
                .broken
                .push("the bad file was not refused".to_owned());
            return Ok(());
        }
        for source in self.stage.view().await?.sources {
            if is_refused(&source.status) {
                let status = output::printable(&source.status);
                self.say(format!("the agent refuses it, and routes on: {status}"));
            }
        }
        Ok(())
    }

    async fn heal(&mut self) -> Result<(), DemoError> {
        for endpoint in &mut self.stage.endpoints {
            endpoint.weight = 1;
        }
        let taken = self.stage.apply().await?;
        self.took("a good file, with equal weights; in the maps", taken);
        Ok(())
    }

    /// Says that a change is in the maps, or takes note that it is not.
    fn took(&mut self, what: impl Into<String>, taken: Option<Duration>) {
        let what = what.into();
        match taken {
            Some(time) => self.say(format!("{what} after {}", millis(time))),
            None => self.findings.broken.push(format!("{what}: not so")),
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
