//! The connections of endpoints, made of subchannels.
//!
//! An endpoint belongs to one cluster and is reachable at one or more addresses (gRFC A61). A
//! subchannel is one address and its transport profile. The two are apart, because several
//! endpoints may share an address. The [`Race`] of an endpoint decides when each address is tried
//! and which one is used. Endpoints own the subchannels that their races want.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_lb::{ClusterName, EndpointId, EndpointState, Race, RaceAction, RaceEvent};
use crowfly_model::grpc::{self as model, Cluster};
use crowfly_names::FewOrMany;
use futures_channel::mpsc;

use crate::health::HealthCheck;
use crate::hostnames::Hostnames;
use crate::security::Profiles;
use crate::subchannel::{Dialling, Report};
use crate::subchannels::{Heard, SubchannelKey, Subchannels};
use crate::transport::{Profile, Sender};

/// A change of an endpoint's state, for the balancer.
pub(crate) type Change = (EndpointId, EndpointState<Sender>);

/// The endpoints that a channel is connected to, or tries to connect to.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// Boxed, because a table has room for more than there are.
    endpoints: FewOrMany<EndpointId, Box<Endpoint>>,
    /// The times at which the next address of an endpoint is to be tried.
    timers: BTreeSet<(Instant, EndpointId)>,
    subchannels: Subchannels,
    hostnames: Hostnames,
    profiles: Profiles,
}

#[derive(Debug)]
struct Endpoint {
    /// The leaf cluster of the endpoint.
    cluster: ClusterName,
    race: Race<Sender>,
    /// The profile of the endpoint's cluster.
    profile: Arc<Profile>,
    /// The endpoint's entry among the timers.
    timer: Option<Instant>,
    /// True if the endpoint's state depends on the health of its server.
    is_checked: bool,
}

impl Endpoint {
    fn key(&self, address: SocketAddr) -> SubchannelKey {
        let profile = Arc::clone(&self.profile);
        SubchannelKey { address, profile }
    }
}

impl Endpoints {
    /// No endpoints yet. The reports of subchannels come out of the receiver and belong into
    /// [`handle`](Self::handle). `timeout` is for TCP, TLS and SETTINGS together.
    pub(crate) fn new(
        profiles: Profiles,
        timeout: Duration,
        health_check: Option<HealthCheck>,
    ) -> (Self, mpsc::UnboundedReceiver<Report>) {
        let (reports, receiver) = mpsc::unbounded();
        let endpoints = Self {
            endpoints: FewOrMany::default(),
            timers: BTreeSet::new(),
            subchannels: Subchannels::new(Dialling::new(timeout), health_check, reports),
            hostnames: Hostnames::default(),
            profiles,
        };
        (endpoints, receiver)
    }

    /// Takes the present form of a leaf cluster. If the cluster's security has changed, its endpoints are connected
    /// again. Each is IDLE, as after a GOAWAY, and open calls finish on their connections.
    pub(crate) fn secure(&mut self, name: &Arc<str>, cluster: &Cluster) -> Vec<Change> {
        if !self.profiles.update(name, cluster) {
            return Vec::new();
        }
        let all = self.endpoints.iter();
        let ids = all.filter(|(_, endpoint)| endpoint.cluster.as_str() == &**name);
        let ids: Vec<EndpointId> = ids.map(|(id, _)| *id).collect();
        let let_go = ids.into_iter().map(|id| {
            self.release(id);
            (id, EndpointState::Idle)
        });
        let_go.collect()
    }

    /// Forgets clusters that are no longer in use.
    pub(crate) fn retain_clusters(&mut self, in_use: impl Fn(&str) -> bool) {
        self.hostnames.retain(&in_use);
        self.profiles.retain(in_use);
    }

    /// The profile of a cluster's endpoint. The profile may depend on the endpoint's host name (gRFC A101).
    fn profile_of(&mut self, cluster: &str, addresses: &[SocketAddr]) -> Arc<Profile> {
        let address = addresses.first();
        let host = address.and_then(|address| self.hostnames.find(cluster, *address));
        self.profiles.of(cluster, host.map(|host| host.as_str()))
    }

    /// The security that a cluster asks for, as a text; `None` if it asks for none.
    pub(crate) fn security_of(&self, cluster: &str) -> Option<Arc<str>> {
        self.profiles.text(cluster)
    }

    /// Takes the host names of a leaf cluster's endpoints. Connections get the new names at once.
    pub(crate) fn name(
        &mut self,
        cluster: &Arc<str>,
        endpoints: Option<&model::Endpoints>,
    ) -> Vec<Change> {
        if !self.hostnames.set(cluster, endpoints) {
            return Vec::new();
        }
        let named = self.endpoints.iter();
        let named = named.filter(|(_, endpoint)| endpoint.cluster.as_str() == &**cluster);
        let changes = named.filter_map(|(id, endpoint)| {
            let key = endpoint.key(endpoint.race.winner()?);
            let state = self.subchannels.state_for(&key, *id)?;
            // Any other state has no connection to name.
            let is_ready = matches!(state, EndpointState::Ready { .. });
            is_ready.then(|| (*id, self.named(endpoint, state)))
        });
        changes.collect()
    }

    fn named_for(&self, id: EndpointId, state: EndpointState<Sender>) -> EndpointState<Sender> {
        match self.endpoints.get(&id) {
            Some(endpoint) => self.named(endpoint, state),
            None => state,
        }
    }

    /// The state of an endpoint, with its host name on the connection.
    fn named(&self, endpoint: &Endpoint, state: EndpointState<Sender>) -> EndpointState<Sender> {
        match state {
            EndpointState::Ready { transport, address } => {
                let hostname = self.hostnames.find(endpoint.cluster.as_str(), address);
                let transport = match hostname {
                    None => transport,
                    hostname => transport.named(hostname),
                };
                EndpointState::Ready { transport, address }
            }
            state => state,
        }
    }

    /// Connects an endpoint to one of its addresses, by the profile of its cluster. Changes that are
    /// known at once are returned. `is_checked` is false if the endpoint takes no part in health checks.
    pub(crate) fn connect(
        &mut self,
        id: EndpointId,
        cluster: &ClusterName,
        addresses: Arc<[SocketAddr]>,
        is_checked: bool,
        now: Instant,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        let profile = self.profile_of(cluster.as_str(), &addresses);
        let known = self.endpoints.get(&id);
        if known.is_some_and(|endpoint| endpoint.profile != profile) {
            // A connection by another profile cannot be kept.
            self.release(id);
        }
        self.endpoints.get_or_insert_with(id, || {
            Box::new(Endpoint {
                cluster: cluster.clone(),
                race: Race::default(),
                profile,
                timer: None,
                is_checked,
            })
        });
        self.step(id, RaceEvent::Connect(addresses), now, &mut changes);
        changes
    }

    /// Releases an endpoint. The open calls of the endpoint finish.
    pub(crate) fn release(&mut self, id: EndpointId) {
        let Some(endpoint) = self.endpoints.remove(&id) else {
            return;
        };
        if let Some(at) = endpoint.timer {
            self.timers.remove(&(at, id));
        }
        for address in endpoint.race.held() {
            self.subchannels.abandon(&endpoint.key(address), id);
        }
    }

    /// Handles a subchannel's report, and returns the changes of the endpoints that own it.
    pub(crate) fn handle(&mut self, report: Report, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        let address = report.0.key.address;
        match self.subchannels.handle(report) {
            // Races do not get it, because an unhealthy server is no reason to connect again (gRFC A61).
            Heard::Health(owners, state) => {
                for id in owners {
                    changes.push((id, self.named_for(id, state.clone())));
                }
            }
            Heard::Nothing => {}
            Heard::State(owners, state) => {
                for id in owners {
                    let state = state.clone();
                    let event = RaceEvent::Subchannel { address, state };
                    self.step(id, event, now, &mut changes);
                }
            }
        }
        changes
    }

    /// The time at which [`handle_timeouts`](Self::handle_timeouts) is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Handles the timers that are due, each of which may start the next address of an endpoint.
    pub(crate) fn handle_timeouts(&mut self, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(endpoint) = self.endpoints.get_mut(&id) {
                endpoint.timer = None;
            }
            self.step(id, RaceEvent::Timeout, now, &mut changes);
        }
        changes
    }

    /// Gives an event to an endpoint's race, and does what the race asks for.
    fn step(
        &mut self,
        id: EndpointId,
        event: RaceEvent<Sender>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let Some(endpoint) = self.endpoints.get_mut(&id) else {
            return;
        };
        endpoint.race.handle(event, now);
        while let Some(endpoint) = self.endpoints.get_mut(&id)
            && let Some(action) = endpoint.race.poll_action()
        {
            match action {
                RaceAction::Abandon(address) => self.abandon(id, address),
                RaceAction::Dial(address) => self.dial(id, address, now),
                RaceAction::State(state) => {
                    let state = self.checked(id, state);
                    changes.push((id, self.named_for(id, state)));
                }
            }
        }
        self.set_timer(id);
    }

    /// The state of an endpoint, changed by the health of its server. An endpoint that won its race begins to ask for
    /// the health (gRFC A61).
    fn checked(&mut self, id: EndpointId, state: EndpointState<Sender>) -> EndpointState<Sender> {
        match (self.endpoints.get(&id), &state) {
            (Some(endpoint), EndpointState::Ready { address, .. }) if endpoint.is_checked => {
                let key = endpoint.key(*address);
                self.subchannels.check(&key, id, state)
            }
            _ => state,
        }
    }

    fn set_timer(&mut self, id: EndpointId) {
        let Some(endpoint) = self.endpoints.get_mut(&id) else {
            return;
        };
        let at = endpoint.race.next_timeout();
        let before = std::mem::replace(&mut endpoint.timer, at);
        if before != at {
            before.map(|before| self.timers.remove(&(before, id)));
            self.timers.extend(at.map(|at| (at, id)));
        }
    }

    /// Becomes an owner of the subchannel of an address. If the subchannel has other owners, its state is reported.
    fn dial(&mut self, id: EndpointId, address: SocketAddr, now: Instant) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            let key = endpoint.key(address);
            let state = self.subchannels.dial(key, id);
            let event = RaceEvent::Subchannel { address, state };
            endpoint.race.handle(event, now);
        }
    }

    fn abandon(&mut self, id: EndpointId, address: SocketAddr) {
        if let Some(endpoint) = self.endpoints.get(&id) {
            self.subchannels.abandon(&endpoint.key(address), id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crowfly_lb::{Balancer, BalancerEvent, Command, Node, Plan};
    use crowfly_model::grpc::cluster::{
        ClusterKind, EndpointPolicy, EndpointSource, LbPolicy, LeafCluster, Sni, TrustedRoots,
        UpstreamTls,
    };
    use crowfly_testkit::Reserved;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::security::Credentials;
    use crate::subchannel::News;

    /// Waits between attempts grow for as long as they fail.
    #[tokio::test(start_paused = true)]
    async fn waits_between_attempts_grow() {
        let refusing = Reserved::new();
        let (id, addresses) = endpoints_at([refusing.address]).remove(0);
        let timeout = Duration::from_secs(20);
        let (mut endpoints, mut reports) = Endpoints::new(plaintext(), timeout, None);
        let mut waits = Vec::new();
        endpoints.connect(id, &"payments-0".into(), addresses, true, now());
        for _ in 0..3 {
            let failed = until(&mut endpoints, &mut reports, |state| {
                matches!(state, EndpointState::TransientFailure(_))
            });
            failed.await;
            let since = Instant::now();
            let idle = until(&mut endpoints, &mut reports, |state| {
                matches!(state, EndpointState::Idle)
            });
            idle.await;
            waits.push(since.elapsed());
        }
        // 1 s, 1.6 s and 2.56 s, each 20 % more or less.
        assert!(
            waits.is_sorted() && waits[2] > waits[0] * 3 / 2,
            "{waits:?}"
        );
    }

    /// Two endpoints at one address share its connection, and when that is lost it is not made again
    /// until one of them asks for it.
    #[tokio::test]
    async fn an_address_of_two_endpoints_is_dialled_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ids = endpoints_at([address, address]);
        let timeout = Duration::from_secs(20);
        let (mut endpoints, mut reports) = Endpoints::new(plaintext(), timeout, None);
        for (id, addresses) in &ids {
            endpoints.connect(
                *id,
                &"payments-0".into(),
                Arc::clone(addresses),
                true,
                now(),
            );
            // The subchannel has begun, but what it reported was not read yet.
            tokio::task::yield_now().await;
        }
        let serve = async {
            let (tcp, _) = listener.accept().await.unwrap();
            h2::server::handshake(tcp).await.unwrap()
        };
        let ready = until(&mut endpoints, &mut reports, |state| {
            matches!(state, EndpointState::Ready { .. })
        });
        let (server, changes) = tokio::join!(serve, ready);
        let changed: BTreeSet<EndpointId> = changes.iter().map(|(id, _)| *id).collect();
        assert_eq!(changed, ids.iter().map(|(id, _)| *id).collect());

        drop(server);
        let idle = until(&mut endpoints, &mut reports, |state| {
            matches!(state, EndpointState::Idle)
        });
        idle.await;
        tokio::time::pause();
        let another = tokio::time::timeout(Duration::from_secs(3600), reports.recv());
        another.await.expect_err("nobody asked for a connection");
    }

    /// gRFC A29: a cluster that asks for TLS does not share a connection with one that does not. When its security
    /// changes, its endpoints release their connections and are connected again.
    #[tokio::test]
    async fn an_address_is_dialled_once_for_each_profile() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ids = endpoints_at([address, address, address]);
        let timeout = Duration::from_secs(20);
        let (mut endpoints, mut reports) = Endpoints::new(plaintext(), timeout, None);
        let secured = cluster(Some(TrustedRoots::Provider("none".to_owned())));
        assert!(
            endpoints
                .secure(&"payments-0".into(), &cluster(None))
                .is_empty()
        );
        assert!(endpoints.secure(&"payments-1".into(), &secured).is_empty());
        for (i, (id, addresses)) in ids.iter().enumerate() {
            let cluster = format!("payments-{i}").into();
            endpoints.connect(*id, &cluster, Arc::clone(addresses), true, now());
        }
        assert_eq!(endpoints.subchannels.len(), 2);
        let serve = async {
            let (tcp, _) = listener.accept().await.unwrap();
            h2::server::handshake(tcp).await.unwrap()
        };
        let ready = until(&mut endpoints, &mut reports, |state| {
            matches!(state, EndpointState::Ready { .. })
        });
        let (_server, changes) = tokio::join!(serve, ready);
        let changed: BTreeSet<EndpointId> = changes.iter().map(|(id, _)| *id).collect();
        assert_eq!(changed, BTreeSet::from([ids[0].0, ids[2].0]));

        // A subchannel goes with its last owner.
        endpoints.release(ids[0].0);
        assert_eq!(endpoints.subchannels.len(), 2);
        endpoints.release(ids[1].0);
        assert_eq!(endpoints.subchannels.len(), 1);
        // An update with the same security is no change, and one with another security is.
        let name = "payments-2".into();
        assert!(endpoints.secure(&name, &cluster(None)).is_empty());
        let changes = endpoints.secure(&name, &secured);
        let [(id, EndpointState::Idle)] = &changes[..] else {
            panic!("expected one endpoint to be let go, got {changes:?}");
        };
        assert_eq!(*id, ids[2].0);
        assert_eq!(endpoints.subchannels.len(), 0);
        assert!(endpoints.secure(&name, &secured).is_empty());
        let addresses = Arc::clone(&ids[2].1);
        let changes = endpoints.connect(*id, &"payments-2".into(), addresses, true, now());
        assert!(matches!(&changes[..], [(_, EndpointState::Connecting)]));
    }

    fn plaintext() -> Profiles {
        let credentials = Credentials::xds(BTreeMap::new(), "payments");
        Profiles::new(Profile::plaintext(), credentials)
    }

    fn cluster(roots: Option<TrustedRoots>) -> Cluster {
        let security = roots.map(|roots| UpstreamTls {
            roots,
            identity: None,
            san_matchers: Vec::new(),
            sni: Sni::default(),
        });
        Cluster {
            name: "payments".to_owned(),
            kind: ClusterKind::Leaf(LeafCluster {
                source: EndpointSource::Eds { service_name: None },
                lb_policy: LbPolicy::Endpoints(EndpointPolicy::RoundRobin),
                max_concurrent_requests: 1024,
                load_reporting: None,
                session_health: BTreeSet::default(),
                session_idle_timeout: Duration::ZERO,
                outlier_detection: None,
                security: security.map(Arc::new),
            }),
            unsupported: Box::default(),
        }
    }

    /// Handles reports until the wanted one has come, and returns the changes that this one caused.
    async fn until(
        endpoints: &mut Endpoints,
        reports: &mut mpsc::UnboundedReceiver<Report>,
        wanted: impl Fn(&EndpointState<Sender>) -> bool,
    ) -> Vec<Change> {
        loop {
            let report = reports.recv().await.unwrap();
            let found = matches!(&report.1, News::State(state) if wanted(state));
            let changes = endpoints.handle(report, now());
            if found {
                return changes;
            }
        }
    }

    fn now() -> std::time::Instant {
        Instant::now().into_std()
    }

    /// Endpoints as a balancer names them, each in a cluster of its own.
    fn endpoints_at<const N: usize>(
        addresses: [SocketAddr; N],
    ) -> Vec<(EndpointId, Arc<[SocketAddr]>)> {
        let mut balancer = Balancer::<Sender>::new(7, Arc::default());
        for (i, address) in addresses.into_iter().enumerate() {
            let plan = Plan {
                cluster: format!("payments-{i}").as_str().into(),
                root: Node::round_robin([address.into()]),
                note: None,
            };
            balancer.handle(BalancerEvent::Plan(Arc::new(plan)), now());
        }
        balancer.flush(now());
        let commands = std::iter::from_fn(|| balancer.poll_command());
        let named = commands.filter_map(|command| match command {
            Command::Connect { id, addresses, .. } => Some((id, addresses)),
            _ => None,
        });
        named.collect()
    }
}
