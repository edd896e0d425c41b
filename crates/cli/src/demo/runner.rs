//! Takes the steps of the timeline: it signals backends and changes the configuration.
//!
//! After each step it waits for the effect that the step should have, and records when there is none.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    DemoError,
    admin::Admin,
    config::{self, ConfigFile},
    processes::Backends,
    state::{DemoState, Status},
    timeline::{Step, steps},
};
use crate::load::Stats;

/// The time in which a backend that is back must be called again. The time is long, because the
/// client's connection backoff grows with each attempt.
const RETURN_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// The pause before the calls that a killed backend lost are counted.
const LOSS_PATIENCE: Duration = Duration::from_millis(200);

/// The processes and files that the steps act on, and the state that views show.
pub(super) struct Runner {
    pub(super) backends: Backends,
    pub(super) config: ConfigFile,
    pub(super) admin: Admin,
    pub(super) stats: Arc<Stats>,
    pub(super) state: watch::Sender<DemoState>,
}

/// The facts that the verdict needs: damage that steps did on purpose, and effects that did not
/// come.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Calls that a kill may have cost. Those calls were open in the client when the process was
    /// gone, or were lost by then.
    pub(super) at_risk: u64,
    /// The addresses of the backends that were killed.
    pub(super) killed: Vec<SocketAddr>,
    /// Expected effects of the demo that did not come.
    pub(super) broken: Vec<String>,
}

impl Runner {
    /// Takes every step, and hands the backends back, because calls are still under way.
    pub(super) async fn run(
        mut self,
        start: Instant,
        duration: Duration,
    ) -> Result<(Backends, Findings), DemoError> {
        let mut findings = Findings::default();
        for (due, step) in steps(duration) {
            sleep_until(start + due).await;
            match step {
                Step::Heal => self.heal(&mut findings).await?,
                Step::Kill(name) => self.kill(name, &mut findings).await?,
                Step::PushBadConfig => self.push_bad_config(&mut findings).await?,
                Step::Return(name) => self.bring_back(name, &mut findings).await?,
                Step::Stop(name) => self.stop(name).await?,
                Step::Weigh(zone, weight) => self.weigh(zone, weight, &mut findings).await?,
            }
        }
        Ok((self.backends, findings))
    }

    async fn stop(&mut self, name: &'static str) -> Result<(), DemoError> {
        let Some(mut child) = self.backends.take(name) else {
            return Ok(());
        };
        self.show(name, Status::Draining);
        self.say(format!(
            "{name}: SIGTERM; it sends GOAWAY and lets open calls finish"
        ));
        let asked = Instant::now();
        child.terminate()?;
        child.wait().await?;
        self.show(name, Status::Stopped);
        self.say(format!("{name}: drained and gone after {}", millis(asked)));
        Ok(())
    }

    async fn kill(&mut self, name: &'static str, findings: &mut Findings) -> Result<(), DemoError> {
        let Some(mut child) = self.backends.take(name) else {
            return Ok(());
        };
        let lost = self.stats.lost_in_flight();
        child.kill().await?;
        // The process is gone and its sockets are closed. Calls that are open now may have been open
        // there, and calls that were lost meanwhile were.
        let at_risk = self.stats.open() + self.stats.lost_in_flight() - lost;
        findings.at_risk += at_risk;
        self.show(name, Status::Killed);
        self.say(format!(
            "{name}: SIGKILL, while the client has {at_risk} calls open"
        ));
        let Some(addr) = self.backends.addr(name) else {
            return Ok(());
        };
        findings.killed.push(addr);
        // Loopback tells the client at once, but the machine may be busy.
        sleep(LOSS_PATIENCE).await;
        let lost = self.stats.lost_on(addr);
        self.say(format!(
            "{name}: lost {lost} that it had taken; the others go on"
        ));
        Ok(())
    }

    async fn bring_back(
        &mut self,
        name: &'static str,
        findings: &mut Findings,
    ) -> Result<(), DemoError> {
        let before = self.calls_to(name);
        self.backends.bring_back(name).await?;
        self.show(name, Status::Up);
        self.say(format!("{name}: started again on its old port"));
        let back = Instant::now();
        while self.calls_to(name) == before {
            if back.elapsed() > RETURN_PATIENCE {
                findings
                    .broken
                    .push(format!("{name} returned and was not called again"));
                return Ok(());
            }
            sleep(PAUSE).await;
        }
        self.say(format!("{name}: called again after {}", millis(back)));
        Ok(())
    }

    async fn weigh(
        &mut self,
        zone: &'static str,
        weight: u32,
        findings: &mut Findings,
    ) -> Result<(), DemoError> {
        let mut before = None;
        self.state
            .send_modify(|state| before = state.set_weight(zone, weight));
        let before = before.unwrap_or_default();
        self.say(format!(
            "zone {zone}: weight {before} -> {weight} in the configuration file"
        ));
        self.serve_good(findings).await
    }

    async fn push_bad_config(&mut self, findings: &mut Findings) -> Result<(), DemoError> {
        let before = self.admin.taken().await?.last_nack;
        let bad = config::bad(&self.state.borrow().zones);
        self.config.replace(&bad).map_err(DemoError::Config)?;
        self.say("bad configuration pushed: an endpoint has weight 0");
        let refused = self
            .admin
            .wait_for(|taken| taken.last_nack != before)
            .await?;
        match refused.and_then(|taken| taken.last_nack) {
            Some(nack) => self.say(format!(
                "NACK from the client, calls go on: {}",
                nack.message
            )),
            None => findings
                .broken
                .push("the bad configuration was not refused".to_owned()),
        }
        Ok(())
    }

    async fn heal(&mut self, findings: &mut Findings) -> Result<(), DemoError> {
        self.say("good configuration again");
        self.serve_good(findings).await
    }

    /// Serves the zones as the state shows them, and waits until the client has accepted them.
    async fn serve_good(&mut self, findings: &mut Findings) -> Result<(), DemoError> {
        let before = self.admin.taken().await?;
        let good = config::good(&self.state.borrow().zones);
        let asked = Instant::now();
        self.config.replace(&good).map_err(DemoError::Config)?;
        match self
            .admin
            .wait_for(|taken| taken.is_acked() && *taken != before)
            .await?
        {
            Some(_) => self.say(format!(
                "the client has accepted it after {}",
                millis(asked)
            )),
            None => findings
                .broken
                .push("a good configuration was not accepted".to_owned()),
        }
        Ok(())
    }

    fn calls_to(&self, name: &str) -> u64 {
        self.stats
            .report()
            .by_backend
            .get(name)
            .copied()
            .unwrap_or(0)
    }

    fn show(&self, name: &str, status: Status) {
        self.state
            .send_modify(|state| state.set_status(name, status));
    }

    fn say(&self, text: impl Into<String>) {
        self.state.send_modify(|state| state.say(text));
    }
}

fn millis(since: Instant) -> String {
    format!("{} ms", since.elapsed().as_millis())
}
