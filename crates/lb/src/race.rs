//! Gets one connection for an endpoint with several addresses: `pick_first` with Happy Eyeballs
//! (A61, A62, RFC 8305), without I/O.
//!
//! An endpoint is a `pick_first` over its addresses, so a driver runs one [`Race`] for each. It
//! passes on what the subchannels report, and does what [`Race::poll_action`] asks. The subchannels
//! do the backing off: one that failed is in TRANSIENT_FAILURE until it may be dialled again, and
//! then IDLE.
//!
//! ```text
//!        Connect              all failed
//!  Idle ────────> first pass ───────────> failing: each address by itself, whenever it may
//!   ^                 │ one is READY         │ one is READY
//!   └── lost ── Won <─┴──────────────────────┘
//! ```

mod order;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use self::order::race_order;
use crate::{
    EndpointState,
    timing::{HAPPY_EYEBALLS_DELAY, HAPPY_EYEBALLS_DELAY_MAX, HAPPY_EYEBALLS_DELAY_MIN},
};

/// An event of an endpoint or of one of its subchannels. The driver passes it to [`Race::handle`].
#[derive(Debug)]
pub enum RaceEvent<T> {
    /// The endpoint is to be connected to one of these addresses
    /// ([`Command::Connect`](crate::Command::Connect)). If it is connected to one of them it stays
    /// so.
    Connect(Arc<[SocketAddr]>),
    /// The subchannel of an address that was asked for reports its state.
    Subchannel {
        /// The address.
        address: SocketAddr,
        /// Its state.
        state: EndpointState<T>,
    },
    /// [`Race::next_timeout`] has come.
    Timeout,
}

/// An action that the driver carries out for an endpoint.
#[derive(Debug)]
pub enum RaceAction<T> {
    /// Release the subchannel of this address. The race ignores its reports from now on.
    Abandon(SocketAddr),
    /// Take the subchannel of this address, connect it if it is IDLE, and report its state from now
    /// on. The present state is reported too if another endpoint has made it connect.
    Dial(SocketAddr),
    /// Report this state to the balancer. A failure that is reported again makes the balancer ask
    /// for a new lookup of names.
    State(EndpointState<T>),
}

/// Decides which address of an endpoint is dialled when. The first one to connect wins.
///
/// ```
/// use std::{net::SocketAddr, sync::Arc, time::{Duration, Instant}};
/// use crowfly_lb::{EndpointState, Race, RaceAction, RaceEvent};
///
/// let [slow, quick]: [SocketAddr; 2] = [([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 80).into()];
/// let now = Instant::now();
/// let mut race = Race::default();
/// race.handle(RaceEvent::Connect(Arc::from([slow, quick])), now);
/// assert!(matches!(race.poll_action(), Some(RaceAction::State(EndpointState::Connecting))));
/// assert!(matches!(race.poll_action(), Some(RaceAction::Dial(address)) if address == slow));
///
/// // A quarter of a second is enough: the next one is tried as well.
/// let later = race.next_timeout().unwrap();
/// assert_eq!(later, now + Duration::from_millis(250));
/// race.handle(RaceEvent::Timeout, later);
/// assert!(matches!(race.poll_action(), Some(RaceAction::Dial(address)) if address == quick));
///
/// let ready = EndpointState::Ready { transport: "h2", address: quick };
/// race.handle(RaceEvent::Subchannel { address: quick, state: ready }, later);
/// assert!(matches!(race.poll_action(), Some(RaceAction::Abandon(address)) if address == slow));
/// assert!(matches!(
///     race.poll_action(),
///     Some(RaceAction::State(EndpointState::Ready { address, .. })) if address == quick
/// ));
/// ```
#[derive(Debug)]
pub struct Race<T> {
    delay: Duration,
    /// The addresses in the order in which they are tried.
    lanes: Vec<Lane>,
    phase: Phase,
    /// True from the failure of all addresses until one is READY. Meanwhile the endpoint reports no
    /// CONNECTING, because failures are sticky (A62).
    failing: bool,
    actions: VecDeque<RaceAction<T>>,
}

impl<T> Race<T> {
    /// A race that gives each address `delay` before the next one is tried as well. A delay under
    /// 100 ms counts as 100 ms, and one over 2 s as 2 s.
    pub fn new(delay: Duration) -> Self {
        Self {
            delay: delay.clamp(HAPPY_EYEBALLS_DELAY_MIN, HAPPY_EYEBALLS_DELAY_MAX),
            lanes: Vec::new(),
            phase: Phase::Idle,
            failing: false,
            actions: VecDeque::new(),
        }
    }

    /// Takes an event.
    pub fn handle(&mut self, event: RaceEvent<T>, now: Instant) {
        match event {
            RaceEvent::Connect(addresses) => self.connect(&addresses, now),
            RaceEvent::Subchannel { address, state } => {
                let lane = self.lanes.iter().position(|lane| lane.address == address);
                if let Some(lane) = lane.filter(|&lane| self.lanes[lane].held) {
                    self.report(lane, state, now);
                }
            }
            RaceEvent::Timeout => {
                if self.next_timeout().is_some_and(|at| at <= now) {
                    self.advance(now);
                }
            }
        }
    }

    /// The next thing to do, or `None` if there is nothing.
    pub fn poll_action(&mut self) -> Option<RaceAction<T>> {
        let action = self.actions.pop_front();
        if action.is_none() {
            // There is nothing more to do for most of an endpoint's life.
            self.actions.shrink_to_fit();
        }
        action
    }

    /// The time at which [`RaceEvent::Timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::FirstPass { next_at, .. } => next_at,
            Phase::Failing { .. } | Phase::Idle | Phase::Won(_) => None,
        }
    }

    /// The addresses whose subchannels the race holds. The driver must release them when it removes
    /// the endpoint.
    pub fn held(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let held = self.lanes.iter().filter(|lane| lane.held);
        held.map(|lane| lane.address)
    }

    /// The address that is connected.
    pub fn winner(&self) -> Option<SocketAddr> {
        match self.phase {
            Phase::Won(lane) => Some(self.lanes[lane].address),
            Phase::Failing { .. } | Phase::FirstPass { .. } | Phase::Idle => None,
        }
    }

    /// A new list is raced over from its first address, unless the winner is in it.
    fn connect(&mut self, addresses: &[SocketAddr], now: Instant) {
        let addresses = race_order(addresses);
        let same = self
            .lanes
            .iter()
            .map(|lane| lane.address)
            .eq(addresses.iter().copied());
        if same && !matches!(self.phase, Phase::Idle) {
            return;
        }
        let winner = self.winner();
        self.replace_lanes(&addresses);
        if let Some(winner) = winner
            && let Some(lane) = addresses.iter().position(|address| *address == winner)
        {
            self.phase = Phase::Won(lane);
            return;
        }
        if !self.failing && !matches!(self.phase, Phase::FirstPass { .. }) {
            self.tell(EndpointState::Connecting);
        }
        for lane in &mut self.lanes {
            lane.failed = false;
        }
        self.phase = Phase::FirstPass {
            next: 0,
            next_at: None,
        };
        self.advance(now);
    }

    /// Replaces the list of addresses. Addresses that stay keep their state; the subchannels of the
    /// others are released.
    fn replace_lanes(&mut self, addresses: &[SocketAddr]) {
        let lanes = Vec::with_capacity(addresses.len());
        let mut known = std::mem::replace(&mut self.lanes, lanes);
        for &address in addresses {
            let lane = known.iter().position(|lane| lane.address == address);
            let lane = lane.map_or_else(|| Lane::new(address), |lane| known.swap_remove(lane));
            self.lanes.push(lane);
        }
        let gone = known.iter().filter(|lane| lane.held);
        let abandons = gone.map(|lane| RaceAction::Abandon(lane.address));
        self.actions.extend(abandons);
    }

    /// Gives the next address its turn. An address in backoff is passed over as failed, because it
    /// may not be dialled yet.
    fn advance(&mut self, now: Instant) {
        let Phase::FirstPass { next, next_at } = &mut self.phase else {
            return;
        };
        *next_at = None;
        while let Some(lane) = self.lanes.get_mut(*next) {
            *next += 1;
            if let Run::Backoff(_) = lane.run {
                lane.failed = true;
                continue;
            }
            if let Run::Idle = lane.run {
                lane.dial(&mut self.actions);
            }
            if *next < self.lanes.len() {
                *next_at = Some(now + self.delay);
            }
            return;
        }
        self.finish_pass();
    }

    fn report(&mut self, lane: usize, state: EndpointState<T>, now: Instant) {
        match state {
            EndpointState::Connecting => {
                self.lanes[lane].run = Run::Connecting;
                self.lose(lane);
            }
            EndpointState::Idle => {
                self.lanes[lane].run = Run::Idle;
                self.lose(lane);
                if let Phase::Failing { .. } = self.phase {
                    self.lanes[lane].dial(&mut self.actions);
                }
            }
            EndpointState::Ready { transport, .. } => self.win(lane, transport),
            EndpointState::TransientFailure(reason) => {
                self.lanes[lane].run = Run::Backoff(reason);
                self.lose(lane);
                self.failed(lane, now);
            }
        }
    }

    /// Makes an address the winner. The subchannels of all others are released, even of those that
    /// are connecting.
    fn win(&mut self, winner: usize, transport: T) {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if index != winner && std::mem::take(&mut lane.held) {
                lane.run = Run::Idle;
                self.actions.push_back(RaceAction::Abandon(lane.address));
            }
        }
        self.phase = Phase::Won(winner);
        self.failing = false;
        let address = self.lanes[winner].address;
        self.tell(EndpointState::Ready { transport, address });
    }

    /// Reports IDLE if the winner was lost, because a new connection is made only on demand. The
    /// subchannel is kept, because it may be in backoff and must not be dialled sooner.
    fn lose(&mut self, lane: usize) {
        if let Phase::Won(winner) = self.phase
            && winner == lane
        {
            self.phase = Phase::Idle;
            self.tell(EndpointState::Idle);
        }
    }

    fn failed(&mut self, index: usize, now: Instant) {
        match &mut self.phase {
            Phase::FirstPass { next, .. } => {
                self.lanes[index].failed = true;
                // Only the failure of the newest address starts the next one. Earlier addresses
                // have had their turn.
                if index + 1 == *next {
                    self.advance(now);
                } else {
                    self.finish_pass();
                }
            }
            Phase::Failing { failures } => {
                *failures += 1;
                if *failures >= self.lanes.len() {
                    *failures = 0;
                    self.tell_failure(index);
                }
            }
            Phase::Idle | Phase::Won(_) => {}
        }
    }

    /// Ends the first pass when every address has failed in it. From then on each address is
    /// dialled whenever its own backoff is over.
    fn finish_pass(&mut self) {
        if !self.lanes.iter().all(|lane| lane.failed) {
            return;
        }
        let Some(last) = self.lanes.len().checked_sub(1) else {
            self.phase = Phase::Idle;
            return;
        };
        self.phase = Phase::Failing { failures: 0 };
        self.failing = true;
        self.tell_failure(last);
        for lane in &mut self.lanes {
            if let Run::Idle = lane.run {
                lane.dial(&mut self.actions);
            }
        }
    }

    fn tell_failure(&mut self, index: usize) {
        let lanes = &self.lanes;
        let newest_first = std::iter::once(&lanes[index]).chain(lanes.iter().rev());
        let mut failed = newest_first.filter_map(|lane| match &lane.run {
            Run::Backoff(reason) => Some((lane.address, reason)),
            Run::Connecting | Run::Idle => None,
        });
        let reason = match failed.next() {
            Some((_, reason)) if lanes.len() == 1 => reason.clone(),
            Some((address, reason)) => format!("{address}: {reason}").into(),
            None => "no address could be reached".into(),
        };
        self.tell(EndpointState::TransientFailure(reason));
    }

    fn tell(&mut self, state: EndpointState<T>) {
        self.actions.push_back(RaceAction::State(state));
    }
}

impl<T> Default for Race<T> {
    fn default() -> Self {
        Self::new(HAPPY_EYEBALLS_DELAY)
    }
}

/// One address of the endpoint, with the state of its subchannel.
#[derive(Debug)]
struct Lane {
    address: SocketAddr,
    /// True from the dialling of the address until its subchannel is released. Reports of other
    /// subchannels are ignored.
    held: bool,
    run: Run,
    /// True if the address has failed in this pass.
    failed: bool,
}

impl Lane {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            held: false,
            run: Run::Idle,
            failed: false,
        }
    }

    fn dial<T>(&mut self, actions: &mut VecDeque<RaceAction<T>>) {
        self.held = true;
        self.run = Run::Connecting;
        actions.push_back(RaceAction::Dial(self.address));
    }
}

/// The state of a subchannel that is not READY.
#[derive(Debug)]
enum Run {
    /// It failed, for this reason, and may not be dialled yet.
    Backoff(Arc<str>),
    Connecting,
    Idle,
}

/// The phase of the race.
#[derive(Debug)]
enum Phase {
    /// Every address has failed. Failures are counted up to the number of addresses.
    Failing { failures: usize },
    /// The addresses get their turns. The turn of `next` comes when the address before it has
    /// failed, or at `next_at`.
    FirstPass {
        next: usize,
        next_at: Option<Instant>,
    },
    /// No connection is wanted.
    Idle,
    /// This lane is connected.
    Won(usize),
}
