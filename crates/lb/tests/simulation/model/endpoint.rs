//! `pick_first` over the addresses of one endpoint (A61, A62): below every policy there is one for
//! each endpoint of a cluster, and the policy `pick_first` has one for all of its addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use crowfly_lb::{
    Connectivity::{self, Connecting, Idle, Ready, TransientFailure},
    EndpointId,
};

use super::Time;
use crate::script::Reported;

/// "The default Connection Attempt Delay value is 250ms."
const DELAY: Time = 250;

pub(crate) struct Endpoint {
    /// The addresses that the policy above will ask it to connect to; none, if it is in no list.
    pub(super) addresses: Vec<SocketAddr>,
    /// The lists that the policy above has asked it to connect to, and that it has not taken yet.
    asked: Vec<Vec<SocketAddr>>,
    /// The addresses that attempts are made with. Empty if it was never connected.
    list: Vec<SocketAddr>,
    /// The subchannels that it holds.
    pub(crate) subchannels: BTreeMap<SocketAddr, Reported>,
    stage: Stage,
    /// The number of addresses that have had their turn in the first pass.
    turns: usize,
    /// The addresses that have failed in the first pass.
    failed: BTreeSet<SocketAddr>,
    /// The time at which the next address has its turn.
    pub(crate) timer: Option<Time>,
    /// The number of failures of any address since the first pass.
    failures: usize,
    /// "We will stay in TRANSIENT_FAILURE until we become connected."
    failing: bool,
    /// A call wants it, and was told to say so.
    told: bool,
    /// The balancer's name for it: always the same.
    pub(crate) id: Option<EndpointId>,
    /// The number of calls that were sent to it.
    pub(crate) picks: u64,
    /// There is no connection any more, or none can be made: a reason to look names up again.
    pub(super) lost: bool,
}

#[derive(PartialEq)]
enum Stage {
    Idle,
    FirstPass,
    /// "We keep trying to connect to all addresses at all times."
    AllTheTime,
    Selected(SocketAddr),
}

impl Endpoint {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            asked: vec![],
            list: vec![],
            subchannels: BTreeMap::new(),
            stage: Stage::Idle,
            turns: 0,
            failed: BTreeSet::new(),
            timer: None,
            failures: 0,
            failing: false,
            told: false,
            id: None,
            picks: 0,
            lost: false,
        }
    }

    pub(crate) fn state(&self) -> Connectivity {
        match self.stage {
            Stage::Selected(_) => Ready,
            _ if self.failing => TransientFailure,
            Stage::Idle if self.asked.is_empty() => Idle,
            _ => Connecting,
        }
    }

    /// No list has it any more, so it is not connected.
    pub(super) fn release(&mut self) {
        *self = Self {
            id: self.id,
            picks: self.picks,
            ..Self::new(vec![])
        };
    }

    /// The address that it is connected to.
    pub(super) fn selected(&self) -> Option<SocketAddr> {
        match self.stage {
            Stage::Selected(address) => Some(address),
            Stage::AllTheTime | Stage::FirstPass | Stage::Idle => None,
        }
    }

    /// True if the endpoint was ever connected.
    pub(crate) fn is_known(&self) -> bool {
        !self.list.is_empty()
    }

    pub(crate) fn is_told(&self) -> bool {
        self.told
    }

    /// A call was told to say that it wants the endpoint.
    pub(crate) fn tell(&mut self) {
        self.told |= self.state() == Idle;
    }

    /// Asks it to connect, if it is IDLE and in a list.
    pub(crate) fn ask(&mut self) {
        if self.state() == Idle && !self.addresses.is_empty() {
            self.told = false;
            self.asked.push(self.addresses.clone());
        }
    }

    /// "Every time the LB policy receives a new address list, it will start an initial Happy Eyeballs
    /// pass over the new list", unless it has no reason to connect.
    pub(super) fn readdress(&mut self, addresses: Vec<SocketAddr>) {
        if self.addresses != addresses {
            self.addresses = addresses;
            if self.state() != Idle {
                self.asked.push(self.addresses.clone());
            }
        }
    }

    /// Does what it was asked to. Whether it was.
    pub(crate) fn obey(&mut self, now: Time) -> bool {
        let asked = std::mem::take(&mut self.asked);
        let was_asked = !asked.is_empty();
        for list in asked {
            self.connect(list, now);
        }
        was_asked
    }

    pub(crate) fn time_passes(&mut self, now: Time) {
        if self.timer.is_some_and(|at| at <= now) {
            self.next_turn(now);
        }
    }

    pub(crate) fn report(&mut self, address: SocketAddr, reported: Reported, now: Time) {
        self.subchannels.insert(address, reported);
        if reported == Reported::Ready {
            self.subchannels.retain(|other, _| *other == address);
            self.stage = Stage::Selected(address);
            self.timer = None;
            self.failing = false;
        } else if self.stage == Stage::Selected(address) {
            self.stage = Stage::Idle;
            self.lost = true;
        } else if self.stage == Stage::AllTheTime {
            self.failures += usize::from(reported == Reported::Failing);
            self.ask_for_names();
            self.dial_all();
        } else if self.stage == Stage::FirstPass && reported == Reported::Failing {
            self.failed.insert(address);
            if address == self.list[self.turns - 1] {
                self.next_turn(now);
            } else {
                self.end_pass();
            }
        }
    }

    /// A connection that leads to an address of the list is kept.
    fn connect(&mut self, list: Vec<SocketAddr>, now: Time) {
        self.list = list;
        self.subchannels
            .retain(|address, _| self.list.contains(address));
        if let Stage::Selected(address) = self.stage
            && self.list.contains(&address)
        {
            return;
        }
        self.stage = Stage::FirstPass;
        self.turns = 0;
        self.failed.clear();
        self.next_turn(now);
    }

    /// "If the subchannel is in state TRANSIENT_FAILURE, we will immediately move on to the next."
    fn next_turn(&mut self, now: Time) {
        self.timer = None;
        while let Some(&address) = self.list.get(self.turns) {
            self.turns += 1;
            if self.subchannels.get(&address) == Some(&Reported::Failing) {
                self.failed.insert(address);
                continue;
            }
            self.subchannels.insert(address, Reported::Connecting);
            if self.turns < self.list.len() {
                self.timer = Some(now + DELAY);
            }
            return;
        }
        self.end_pass();
    }

    /// "We will wait for at least one connection attempt on every address to fail."
    fn end_pass(&mut self) {
        let mut list = self.list.iter();
        if list.all(|address| self.failed.contains(address)) {
            self.stage = Stage::AllTheTime;
            self.failing = true;
            self.failures = self.list.len();
            self.ask_for_names();
            self.dial_all();
        }
    }

    /// "When that number reaches the number of subchannels, we will request re-resolution."
    fn ask_for_names(&mut self) {
        if self.failures == self.list.len() {
            self.failures = 0;
            self.lost = true;
        }
    }

    /// "Automatically request a connection whenever a subchannel reports IDLE."
    fn dial_all(&mut self) {
        for state in self.subchannels.values_mut() {
            if *state == Reported::Idle {
                *state = Reported::Connecting;
            }
        }
    }
}
