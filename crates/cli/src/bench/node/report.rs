//! The result of the benchmark: text for people, and JSON for scripts that compare runs.

use std::fmt::Write;

use serde::Serialize;

use super::{
    memory::{AgentMemory, Memory},
    programming::Programming,
    reaction::{LeftOut, Reaction},
    rounds::{Compared, Side},
};

/// Everything that was measured. Scripts rely on its JSON form.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) goals: Vec<Goal>,
    pub(super) connects: Vec<Compared>,
    pub(super) requests: Vec<Compared>,
    pub(super) stream: Compared,
    pub(super) programming: Programming,
    pub(super) reactions: Vec<Reaction>,
    /// The sources whose reaction was not measured.
    pub(super) left_out: Vec<LeftOut>,
    pub(super) memory: Memory,
}

/// The conditions of the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) kernel: String,
    pub(super) cpus: usize,
    /// The scheduling policy of the measured processes.
    pub(super) scheduler: &'static str,
    /// The load average when the run began, of one minute.
    pub(super) load: f64,
    pub(super) nft: String,
    pub(super) rounds: usize,
    /// True if clients and server could run on different processors.
    pub(super) spreads: bool,
}

/// A figure that the agent should reach.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Goal {
    pub(super) name: String,
    pub(super) at_most: f64,
    pub(super) found: f64,
    pub(super) unit: &'static str,
    pub(super) met: bool,
}

impl Goal {
    fn new(name: impl Into<String>, at_most: f64, found: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            at_most,
            found,
            unit,
            met: found <= at_most,
        }
    }
}

impl Report {
    /// Compares the figures with the goals.
    pub(super) fn judge(&mut self) {
        let mut goals = Vec::new();
        if let Some(most) = self.connects.last() {
            let name = format!("connect, request, close at {} services", most.services);
            goals.push(Goal::new(
                name,
                1.25,
                most.ours_to_direct.median,
                "x direct",
            ));
        }
        if let Some(most) = self.requests.last() {
            let found = most.ours_to_direct.median;
            let name = "request on an open connection";
            goals.push(Goal::new(name, 1.02, found, "x direct"));
        }
        let Programming {
            services, ours_ms, ..
        } = self.programming;
        let name = format!("{services} services programmed");
        goals.push(Goal::new(name, 1_000.0, ours_ms, "ms"));
        let change = self.programming.change_p50_us / 1e3;
        goals.push(Goal::new(
            "one endpoint change in the maps",
            1.0,
            change,
            "ms",
        ));
        for AgentMemory {
            source,
            resident_mb,
            ..
        } in &self.memory.agents
        {
            let name = format!("memory of the agent, source {source}");
            goals.push(Goal::new(name, 100.0, *resident_mb, "MB"));
        }
        let maps_mb = self.memory.maps_mb;
        goals.push(Goal::new("memory of the maps", 100.0, maps_mb, "MB"));
        self.goals = goals;
    }

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
        let Machine {
            kernel,
            cpus,
            scheduler,
            load,
            nft,
            rounds,
            spreads,
        } = &self.machine;
        let processors = match spreads {
            true => "clients and server on any CPU",
            false => "clients and server share a CPU",
        };
        let _ = writeln!(
            text,
            "Linux {kernel}, {cpus} CPUs, {scheduler}, load {load:.1}, {nft}, {rounds} rounds, {processors}\n\n\
             p50 divided by those of direct connections: median (quartiles)\n\
             {:<34}{:>10}  {:<22}  nftables",
            "", "services", "crowfly"
        );
        for (name, rows) in self.workloads() {
            for row in rows {
                let ratio = |ratio: &super::rounds::Ratio| {
                    format!(
                        "{:.3} ({:.3}-{:.3})",
                        ratio.median, ratio.lower, ratio.upper
                    )
                };
                let _ = writeln!(
                    text,
                    "{name:<34}{:>10}  {:<22}  {}",
                    row.services,
                    ratio(&row.ours_to_direct),
                    ratio(&row.nft_to_direct)
                );
            }
        }
        self.write_sides(text);
        self.write_programming(text);
        let _ = writeln!(text, "\ngoals");
        for goal in &self.goals {
            let Goal {
                name,
                at_most,
                found,
                unit,
                met,
            } = goal;
            let mark = if *met { "met   " } else { "MISSED" };
            let _ = writeln!(text, "{mark} {name}: {found:.3} {unit}, at most {at_most}");
        }
    }

    fn workloads(&self) -> [(&'static str, &[Compared]); 3] {
        [
            ("connect, request, close", &self.connects),
            ("request on an open connection", &self.requests),
            ("stream", std::slice::from_ref(&self.stream)),
        ]
    }

    fn write_sides(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nmedians of the rounds: per second, p50 and p99 in µs\n{:<34}{:>10}  {:<24}{:<24}nftables",
            "", "services", "direct", "crowfly"
        );
        for (name, rows) in &self.workloads()[..2] {
            for row in *rows {
                let side = |side: &Side| {
                    format!(
                        "{:.0}/s {:.1} {:.1}",
                        side.per_second, side.p50_us, side.p99_us
                    )
                };
                let _ = writeln!(
                    text,
                    "{name:<34}{:>10}  {:<24}{:<24}{}",
                    row.services,
                    side(&row.direct),
                    side(&row.ours),
                    side(&row.nft)
                );
            }
        }
        let megabytes = |side: &Side| format!("{:.0} MB/s", side.per_second / 1e6);
        let _ = writeln!(
            text,
            "{:<34}{:>10}  {:<24}{:<24}{}",
            "stream",
            self.stream.services,
            megabytes(&self.stream.direct),
            megabytes(&self.stream.ours),
            megabytes(&self.stream.nft)
        );
    }

    fn write_programming(&self, text: &mut String) {
        let Programming {
            services,
            backends_each,
            ours_ms,
            ours_slowest_ms,
            agent_start_ms,
            nft_ms,
            change_p50_us,
            change_p99_us,
            nft_change_ms,
        } = &self.programming;
        let _ = writeln!(
            text,
            "\n{services} services x {backends_each} backends programmed from empty: \
             {ours_ms:.0} ms (slowest {ours_slowest_ms:.0} ms), nft -f {nft_ms:.0} ms\n\
             a whole agent started with them from a file: {agent_start_ms:.0} ms\n\
             one endpoint change: p50 {change_p50_us:.0} µs, p99 {change_p99_us:.0} µs; \
             nft -f {nft_change_ms:.0} ms"
        );
        self.write_reactions(text);
        let Memory {
            services,
            backends_each,
            agents,
            maps_mb,
            ..
        } = &self.memory;
        let agents = agents.iter().map(|agent| {
            let AgentMemory {
                source,
                resident_mb,
                peak_mb,
                reporting_mb,
            } = agent;
            format!(
                "{source} {resident_mb:.0} MB (peak {peak_mb:.0} MB; {reporting_mb:.0} MB with load reports)"
            )
        });
        let agents: Vec<_> = agents.collect();
        let _ = writeln!(
            text,
            "memory at {services} services x {backends_each} backends: maps in the kernel {maps_mb:.0} MB; \
             agent by source: {}",
            agents.join(", ")
        );
    }

    fn write_reactions(&self, text: &mut String) {
        for reaction in &self.reactions {
            let Reaction {
                median_ms,
                slowest_ms,
                failed,
                ..
            } = reaction;
            let _ = writeln!(
                text,
                "from {} to the first connection on the new backend: {median_ms:.1} ms \
                 (slowest {slowest_ms:.1} ms), {failed} failed connections",
                reaction.change()
            );
        }
        for LeftOut { source, reason } in &self.left_out {
            let _ = writeln!(text, "left out: the source {source}, because {reason}");
        }
    }
}
