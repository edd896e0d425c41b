//! The steps of the demo. Each breaks, repairs or changes one part, and checks what Crowfly
//! promises meanwhile. A broken promise is noted for the verdict, and the demo goes on.

use std::time::Duration;

use crowfly_control::loads::Loads;
use tokio::time::{Instant, sleep};

use super::{
    Demo, DemoError, millis,
    stage::{self, Stage},
    verdict::Outage,
};
use crate::{loads, output, peer};

/// The time in which the client's report of a connection comes in.
const REPORT: Duration = Duration::from_millis(250);

/// The time in which loads are reported. The control plane asks for them every second, and an agent whose
/// control plane was gone is back after some seconds.
const LOADS: Duration = Duration::from_secs(8);

/// The backend that dies.
const VICTIM: usize = 1;

impl Demo {
    pub(super) async fn kill_backend(&mut self) -> Result<(), DemoError> {
        let name = self.stage.service.endpoints[VICTIM].name;
        let killing = peer::micros();
        self.stage.kill_backend(VICTIM).await?;
        let killed = peer::micros();
        self.say(format!("{name}: SIGKILL; the control plane lists it still"));
        sleep(REPORT).await;
        self.stage.service.endpoints[VICTIM].is_listed = false;
        let taken = self.stage.apply().await?;
        let switched = peer::micros();
        self.findings.outage = Some(Outage {
            killing,
            killed,
            switched,
        });
        sleep(REPORT).await;
        let what = format!("{name}: out of the control plane's file, and of the maps");
        self.took(what, taken);
        let failed = self.tally.now().failed();
        self.say(format!(
            "{name}: {failed} connections were refused until then"
        ));
        Ok(())
    }

    pub(super) async fn return_backend(&mut self) -> Result<(), DemoError> {
        let name = self.stage.service.endpoints[VICTIM].name;
        self.stage.start_backend(VICTIM).await?;
        self.stage.service.endpoints[VICTIM].is_listed = true;
        let before = self.tally.now();
        let taken = self.stage.apply().await?;
        self.took(format!("{name}: started again, and in the maps"), taken);
        sleep(REPORT).await;
        if self.tally.now().since(&before, name) == 0 {
            self.broken(format!("{name} returned and got no connection"));
        }
        Ok(())
    }

    pub(super) async fn move_to_zone_b(&mut self, duration: Duration) -> Result<(), DemoError> {
        self.stage.service.weights = [1, 9];
        let taken = self.stage.apply().await?;
        self.took("weights: zone a 1, zone b 9; in the maps", taken);
        sleep(REPORT).await;
        let before = self.tally.now();
        sleep(duration.mul_f64(0.12)).await;
        let now = self.tally.now();
        let count = now.ok() - before.ok();
        let to_b = now.since(&before, "b1") + now.since(&before, "b2");
        let share = 100.0 * to_b as f64 / count.max(1) as f64;
        // Four standard deviations: chance alone is outside once in 16,000 runs.
        let tolerance = 400.0 * (0.9 * 0.1 / count.max(1) as f64).sqrt();
        let found = format!(
            "zone b gets {share:.0} % of {count} connections; 90 % were expected, give or take \
             {tolerance:.0} %"
        );
        self.say(&found);
        if (share - 90.0).abs() > tolerance {
            self.broken(found);
        }
        Ok(())
    }

    pub(super) async fn kill_agent(&mut self) -> Result<(), DemoError> {
        self.before = self.tally.now();
        self.stage.kill_agent().await?;
        self.say("the agent: SIGKILL; programs and maps are pinned, so connections are routed on");
        Ok(())
    }

    pub(super) async fn start_agent(&mut self) -> Result<(), DemoError> {
        self.findings.without_agent = self.routed_without("an agent");
        let begin = Instant::now();
        self.stage.start_agent().await?;
        self.say(format!(
            "the agent: started again, and routes after {}",
            millis(begin.elapsed())
        ));
        Ok(())
    }

    pub(super) async fn kill_control(&mut self) -> Result<(), DemoError> {
        let loads = self.failures_by_place().await?;
        self.before = self.tally.now();
        self.findings.reported = opened(&loads);
        self.stage.kill_control().await?;
        self.say("the control plane: SIGKILL; the agent keeps what it was told");
        // The control plane reads this when it is started again.
        self.stage.service.weights = [1, 1];
        self.stage.write()
    }

    /// The kernel must have seen every failure at the backend that was killed, and none elsewhere. It
    /// counts by backend. The agent reports by zone, so that those of backends that left are there too.
    async fn failures_by_place(&mut self) -> Result<Loads, DemoError> {
        let counts = self.tally.now();
        let outage = self.findings.outage;
        let broken = counts.failed.iter();
        let broken = broken.filter(|it| outage.is_some_and(|outage| outage.broke(it)));
        // Those that were open when the backend died did not fail to open.
        let least = counts.failed() - broken.count() as u64;
        let zone = self.stage.service.endpoints[VICTIM].zone;
        let is_told = |loads: &Loads| (least..=counts.failed()).contains(&failed(loads, zone));
        let loads = reports(&self.stage, is_told).await?;
        let (at_zone, all) = (failed(&loads, zone), failed_anywhere(&loads));
        if !is_told(&loads) || all != at_zone {
            let sent = counts.failed();
            self.broken(format!(
                "{sent} connections failed; the kernel saw {at_zone} in zone {zone}, {all} in all"
            ));
        }
        let victim = self.stage.service.endpoints[VICTIM].address;
        for backend in stage::backends(&self.stage.view().await?) {
            if backend.address != victim && backend.failed > 0 {
                let (address, failed) = (backend.address, backend.failed);
                self.broken(format!("{address}: the kernel saw {failed} failures there"));
            }
        }
        Ok(loads)
    }

    pub(super) async fn start_control(&mut self) -> Result<(), DemoError> {
        self.findings.without_control = self.routed_without("a control plane");
        let begin = Instant::now();
        self.stage.start_control().await?;
        let taken = self.stage.routed().await?.map(|_| begin.elapsed());
        let what = "the control plane: started again, with equal weights; in the maps";
        self.took(what, taken);
        Ok(())
    }

    /// Says how connections went since [`Self::before`], and returns the number of good ones.
    fn routed_without(&mut self, what: &str) -> u64 {
        let now = self.tally.now();
        let ok = now.ok() - self.before.ok();
        let failed = now.failed() - self.before.failed();
        self.say(format!(
            "without {what}: {ok} connections ok, {failed} failed"
        ));
        if ok == 0 {
            self.broken(format!("no connection was routed without {what}"));
        }
        ok
    }

    /// Shows the loads that the second control plane was told, and compares the sum of both with the
    /// client's count.
    pub(super) async fn conclude(&mut self, rps: u32) -> Result<(), DemoError> {
        let sent = self.tally.now().sent();
        let first = self.findings.reported;
        let loads = reports(&self.stage, |loads| first + opened(loads) >= sent).await?;
        let second = opened(&loads);
        self.say(
            "`crowfly loads`, of the control plane that was started again; its calls are connections, and its \
             first report has those since the kill:",
        );
        output::line(loads::shown(&loads));
        self.findings.reported = first + second;
        self.say(format!(
            "connections reported: {first} to the first control plane, {second} to the second, of \
             {sent} that were sent"
        ));
        let reported = first + second;
        // A report that was under way to the killed one has the connections of a second.
        if second == 0 || reported > sent || sent - reported > u64::from(2 * rps) {
            self.broken(format!("{sent} connections sent, {reported} reported"));
        }
        Ok(())
    }
}

/// Asks the control plane until it was told what is wanted, for a while.
async fn reports(stage: &Stage, is_wanted: impl Fn(&Loads) -> bool) -> Result<Loads, DemoError> {
    let begin = Instant::now();
    loop {
        let loads = stage.loads().await?;
        if is_wanted(&loads) || begin.elapsed() > LOADS {
            return Ok(loads);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn opened(loads: &Loads) -> u64 {
    loads.rows.iter().map(|row| row.connections.opened).sum()
}

fn failed_anywhere(loads: &Loads) -> u64 {
    loads.rows.iter().map(|row| row.connections.failed).sum()
}

fn failed(loads: &Loads, zone: &str) -> u64 {
    let is_there = |place: &str| place.split('/').any(|part| part == zone);
    let rows = loads.rows.iter();
    let rows = rows.filter(|row| row.backend_locality.as_deref().is_some_and(is_there));
    rows.map(|row| row.connections.failed).sum()
}
