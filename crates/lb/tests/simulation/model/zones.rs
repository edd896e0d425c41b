//! The model of `xds_wrr_locality`, which is `weighted_target` with a child for each locality
//! (A37).

use crowfly_lb::{
    Connectivity::{self, Connecting, Idle, Ready, TransientFailure},
    Locality, LocalityId,
};

use super::{Branch, KEPT, Made, Name, Outcome, Position, Shares, Time, best};

#[derive(Default)]
pub(crate) struct Zones(Vec<Zone>);

struct Zone {
    id: LocalityId,
    /// Its weight, or until when it is kept without one.
    weight: Result<u32, Time>,
    position: Position,
    /// The state that counts: a locality that failed counts as failing until it is READY.
    counts_as: Connectivity,
}

impl Zones {
    pub(super) fn update(&mut self, plan: &[Locality], made: &Made, now: Time) {
        for zone in &mut self.0 {
            if plan.iter().all(|next| next.id != zone.id) {
                zone.weight = zone.weight.map_or_else(Err, |_| Err(now + KEPT));
            }
        }
        for next in plan {
            let weight = Ok(next.weight.get());
            match self.0.iter_mut().find(|zone| zone.id == next.id) {
                Some(zone) => {
                    zone.weight = weight;
                    zone.position.update(&next.child, made, now);
                }
                None => self.0.push(Zone {
                    id: next.id.clone(),
                    weight,
                    position: Position::create(&next.child, made, now),
                    counts_as: Connecting,
                }),
            }
        }
        // Those of the plan first: it matters which of them connects an endpoint first.
        let place = |zone: &Zone| plan.iter().position(|next| next.id == zone.id);
        self.0
            .sort_by_key(|zone| (place(zone).unwrap_or(plan.len()), zone.id.clone()));
    }

    /// No call can ask for a locality that is IDLE, so it is asked to connect.
    pub(super) fn settle(&mut self, now: Time) {
        self.0
            .retain(|zone| zone.weight.is_ok() || zone.weight > Err(now));
        for zone in &mut self.0 {
            zone.position.settle(now);
            if zone.position.state() == Idle {
                zone.position.current.exit_idle();
            }
            let state = zone.position.state();
            if zone.counts_as != TransientFailure || state == Ready {
                zone.counts_as = state;
            }
        }
    }

    pub(super) fn state(&self) -> Connectivity {
        best(self.used().map(|(_, zone)| zone.counts_as))
    }

    pub(super) fn timers(&self, into: &mut Vec<Time>) {
        into.extend(self.0.iter().filter_map(|zone| zone.weight.err()));
    }

    pub(super) fn child(&self, name: &str) -> Option<&Position> {
        let named = LocalityId::new("", name, "");
        let zone = self.0.iter().find(|zone| zone.id == named);
        zone.map(|zone| &zone.position)
    }

    /// The localities whose leaves have an endpoint.
    pub(super) fn that_have(&self, name: Name) -> impl Iterator<Item = LocalityId> {
        let zones = self.0.iter().filter(move |zone| {
            let mut has = false;
            zone.position.each(&mut |branch| {
                if let Branch::Leaf(leaf) = branch {
                    has |= leaf.names().contains(&name);
                }
            });
            has
        });
        zones.map(|zone| zone.id.clone())
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = &Position> {
        self.0.iter().map(|zone| &zone.position)
    }

    pub(super) fn shares(&self, of: f64, into: &mut Shares) {
        let ready = || self.used().filter(|(_, zone)| zone.counts_as == Ready);
        let total: f64 = ready().map(|(weight, _)| weight).sum();
        for (weight, zone) in ready() {
            zone.position.current.shares(of * weight / total, into);
        }
    }

    /// Calls go to the READY ones, wait if one may become so, and else fail like any of them.
    pub(super) fn outcomes(&self, hash: Option<u64>, into: &mut Vec<Outcome>) {
        let state = self.state();
        if let Connecting | Idle = state {
            return into.push(Outcome::Wait);
        }
        if self.used().next().is_none() {
            return into.push(Outcome::Fail);
        }
        for (_, zone) in self.used().filter(|(_, zone)| zone.counts_as == state) {
            if let Branch::Leaf(leaf) = &zone.position.current {
                let mut outcomes = Vec::new();
                leaf.outcomes(hash, &mut outcomes);
                for outcome in &mut outcomes {
                    if let Outcome::Send(_, locality) = outcome {
                        locality.get_or_insert_with(|| zone.id.clone());
                    }
                }
                into.append(&mut outcomes);
            }
        }
    }

    fn used(&self) -> impl Iterator<Item = (f64, &Zone)> {
        let weight = |zone: &Zone| zone.weight.ok().map(f64::from);
        self.0
            .iter()
            .filter_map(move |zone| Some((weight(zone)?, zone)))
    }
}
