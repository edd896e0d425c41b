//! Makes things happen: signals to the backends, changes to the configuration.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    DemoError,
    admin::Admin,
    cast::Cast,
    config::{self, ConfigFile},
    scene::{Scene, Status},
    script::{Step, script},
};
use crate::load::Stats;

/// How long a backend that is back may take to be called again. Its client waits between attempts
/// to connect, longer each time.
const RETURN_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// When to count the calls that a killed backend took with it.
const LOSS_PATIENCE: Duration = Duration::from_millis(200);

pub(super) struct Director {
    pub(super) cast: Cast,
    pub(super) config: ConfigFile,
    pub(super) admin: Admin,
    pub(super) stats: Arc<Stats>,
    pub(super) scene: watch::Sender<Scene>,
}

/// What the script did to calls, and what it found out.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Calls that a kill may have cost: those that the client had open when the process was gone,
    /// and those it had lost by then.
    pub(super) at_risk: u64,
    /// Where the backends were that were killed.
    pub(super) killed: Vec<SocketAddr>,
    /// Claims of the demo that did not come true.
    pub(super) broken: Vec<String>,
}

impl Director {
    /// Plays the script from `start` to its end, and hands the cast back: it is still needed.
    pub(super) async fn play(
        mut self,
        start: Instant,
        duration: Duration,
    ) -> Result<(Cast, Account), DemoError> {
        let mut account = Account::default();
        for (due, step) in script(duration) {
            sleep_until(start + due).await;
            match step {
                Step::Heal => self.heal(&mut account).await?,
                Step::Kill(name) => self.kill(name, &mut account).await?,
                Step::PushBadConfig => self.push_bad_config(&mut account).await?,
                Step::Return(name) => self.bring_back(name, &mut account).await?,
                Step::Stop(name) => self.stop(name).await?,
                Step::Weigh(zone, weight) => self.weigh(zone, weight, &mut account).await?,
            }
        }
        Ok((self.cast, account))
    }

    async fn stop(&mut self, name: &'static str) -> Result<(), DemoError> {
        let Some(mut child) = self.cast.take(name) else {
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

    async fn kill(&mut self, name: &'static str, account: &mut Account) -> Result<(), DemoError> {
        let Some(mut child) = self.cast.take(name) else {
            return Ok(());
        };
        let lost = self.stats.lost_in_flight();
        child.kill().await?;
        // The process is gone and its sockets are closed. What the client has open now may have
        // been open there; what it lost meanwhile was.
        let at_risk = self.stats.open() + self.stats.lost_in_flight() - lost;
        account.at_risk += at_risk;
        self.show(name, Status::Killed);
        self.say(format!(
            "{name}: SIGKILL, while the client has {at_risk} calls open"
        ));
        let Some(addr) = self.cast.addr(name) else {
            return Ok(());
        };
        account.killed.push(addr);
        // Loopback tells the client at once; this is for a busy machine.
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
        account: &mut Account,
    ) -> Result<(), DemoError> {
        let before = self.calls_to(name);
        self.cast.bring_back(name).await?;
        self.show(name, Status::Up);
        self.say(format!("{name}: started again on its old port"));
        let back = Instant::now();
        while self.calls_to(name) == before {
            if back.elapsed() > RETURN_PATIENCE {
                account
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
        account: &mut Account,
    ) -> Result<(), DemoError> {
        let mut before = None;
        self.scene
            .send_modify(|scene| before = scene.set_weight(zone, weight));
        let before = before.unwrap_or_default();
        self.say(format!(
            "zone {zone}: weight {before} -> {weight} in the configuration file"
        ));
        self.serve_good(account).await
    }

    async fn push_bad_config(&mut self, account: &mut Account) -> Result<(), DemoError> {
        let before = self.admin.taken().await?.last_nack;
        let bad = config::bad(&self.scene.borrow().zones);
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
            None => account
                .broken
                .push("the bad configuration was not refused".to_owned()),
        }
        Ok(())
    }

    async fn heal(&mut self, account: &mut Account) -> Result<(), DemoError> {
        self.say("good configuration again");
        self.serve_good(account).await
    }

    /// Serves what the scene shows, and waits until the client has taken it.
    async fn serve_good(&mut self, account: &mut Account) -> Result<(), DemoError> {
        let before = self.admin.taken().await?;
        let good = config::good(&self.scene.borrow().zones);
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
            None => account
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
        self.scene
            .send_modify(|scene| scene.set_status(name, status));
    }

    fn say(&self, text: impl Into<String>) {
        self.scene.send_modify(|scene| scene.say(text));
    }
}

fn millis(since: Instant) -> String {
    format!("{} ms", since.elapsed().as_millis())
}
