//! Random events of three sources, compared with a naive reading of what the sources have in the end.
//!
//! The oracle has another shape than the code: it keeps no index, and looks through all services for each
//! address.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crowfly_names::LocalityId;
use crowfly_node::model::{
    Backend, Conditions, Health, Place, Policy, PortName, Protocol, RemoteBackends, Service,
    ServiceKind, ServiceName, ServicePort,
};
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_source::Event;
use proptest::prelude::*;

const SOURCES: [&str; 3] = ["kubernetes", "kvstore", "xds"];

/// A few names, addresses and backends, so that they collide often.
const NAMES: u8 = 3;
const ADDRESSES: u8 = 4;
const BACKENDS: u8 = 4;

/// The services of each source.
type State = [BTreeMap<ServiceName, Arc<Service>>; SOURCES.len()];

#[derive(Clone, Debug)]
enum Said {
    Upsert(Arc<Service>),
    Delete(ServiceName),
    List(Vec<Arc<Service>>),
    Fail,
}

fn service() -> impl Strategy<Value = Arc<Service>> {
    let backends = prop::collection::btree_map(0..BACKENDS, any::<bool>(), 0..3);
    let preferred = prop::option::weighted(0.3, prop::sample::select(SOURCES.to_vec()));
    let remote = prop::sample::select(vec![
        RemoteBackends::Ignored,
        RemoteBackends::Added,
        RemoteBackends::Fallback,
        RemoteBackends::Preferred,
    ]);
    let addresses = prop::collection::btree_set(0..ADDRESSES, 0..3);
    (
        0..NAMES,
        addresses,
        backends,
        preferred,
        remote,
        any::<bool>(),
    )
        .prop_map(|(name, addresses, backends, preferred, remote, shared)| {
            let addresses = addresses.into_iter().map(address).collect();
            Arc::new(Service {
                ports: vec![ServicePort {
                    name: "".into(),
                    port: 80,
                    protocol: Protocol::Tcp,
                    policy: Arc::new(Policy::default()),
                    reported_as: None,
                }],
                backends: backends.into_iter().map(backend).collect(),
                preferred_source: preferred.map(Into::into),
                remote,
                shared,
                ..Service::new(self::name(name), ServiceKind::ClusterIp(addresses))
            })
        })
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        8 => service().prop_map(Said::Upsert),
        3 => (0..NAMES).prop_map(|number| Said::Delete(name(number))),
        2 => prop::collection::vec(service(), 0..3).prop_map(Said::List),
        1 => Just(Said::Fail),
    ]
}

fn name(number: u8) -> ServiceName {
    ServiceName::new("default", &format!("s{number}"))
}

fn address(number: u8) -> IpAddr {
    IpAddr::from([10, 96, 0, number])
}

fn backend((number, ready): (u8, bool)) -> Backend {
    let port = PortName {
        name: "".into(),
        protocol: Protocol::Tcp,
    };
    Backend {
        addresses: [IpAddr::from([10, 244, 0, number])].into_iter().collect(),
        ports: Arc::new(BTreeMap::from([(port, 8080)])),
        conditions: Conditions {
            ready,
            ..Conditions::default()
        },
        health: Health::Healthy,
        node: None,
        zone: None,
        locality: LocalityId::default(),
        remote_cluster: None,
        hints: None,
        weight: 1,
        priority: 0,
    }
}

fn events(said: &Said) -> Vec<ServiceEvent> {
    let upsert = |service: &Arc<Service>| Event::Upsert(service.name.clone(), Arc::clone(service));
    match said {
        Said::Upsert(service) => vec![upsert(service)],
        Said::Delete(name) => vec![Event::Delete(name.clone())],
        Said::Fail => vec![Event::Failed("cut off".into())],
        Said::List(all) => {
            let begin = [Event::Init].into_iter();
            let all = begin.chain(all.iter().map(upsert));
            all.chain([Event::InitDone]).collect()
        }
    }
}

fn remember(state: &mut State, source: usize, said: &Said) {
    let values = &mut state[source];
    match said {
        Said::Upsert(service) => {
            values.insert(service.name.clone(), Arc::clone(service));
        }
        Said::Delete(name) => {
            values.remove(name);
        }
        Said::List(all) => {
            let all = all.iter().cloned();
            *values = all.map(|service| (service.name.clone(), service)).collect();
        }
        Said::Fail => {}
    }
}

/// The service that has an address, with its source.
fn owner(state: &State, address: IpAddr) -> Option<(usize, &Arc<Service>)> {
    let of_source = |source: usize| {
        let mut all = state[source].values();
        let found = all.find(|service| service.cluster_ips().contains(&address));
        found.map(|service| (source, service))
    };
    let first = (0..SOURCES.len()).find_map(of_source)?;
    let preferred = first.1.preferred_source.as_deref();
    let preferred = preferred.and_then(|name| SOURCES.iter().position(|it| *it == name));
    preferred.and_then(of_source).or(Some(first))
}

/// The backends that an address has.
fn expected(state: &State, address: IpAddr) -> Option<BTreeSet<IpAddr>> {
    let (source, service) = owner(state, address)?;
    let usable = |backends: &[Backend]| -> BTreeSet<IpAddr> {
        let ready = backends.iter().filter(|backend| backend.conditions.ready);
        ready.map(|backend| backend.addresses[0]).collect()
    };
    let own = usable(&service.backends);
    let mut remote = BTreeSet::new();
    for (other, services) in state.iter().enumerate() {
        match services.get(&service.name) {
            Some(found) if other != source && found.shared => {
                remote.extend(usable(&found.backends));
            }
            _ => {}
        }
    }
    for known in service.backends.iter() {
        remote.remove(&known.addresses[0]);
    }
    Some(match service.remote {
        RemoteBackends::Ignored => own,
        RemoteBackends::Added => own.union(&remote).copied().collect(),
        RemoteBackends::Fallback if own.is_empty() => remote,
        RemoteBackends::Fallback => own,
        RemoteBackends::Preferred if remote.is_empty() => own,
        RemoteBackends::Preferred => remote,
    })
}

fn table(services: &Services) -> BTreeMap<IpAddr, BTreeSet<IpAddr>> {
    let routes = services.routes().iter();
    let routes = routes.map(|(frontend, route)| {
        let targets = route.targets.iter().map(|target| target.address.ip());
        (frontend.address, targets.collect())
    });
    routes.collect()
}

fn services() -> Services {
    Services::new(SOURCES.map(Into::into).into(), Place::default())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// N-57, N-60: after each event the table is what a naive reading of the sources says, with
    /// preferred sources and global services among them. A reader of the changes alone has the same
    /// table, and a change that was told is one.
    #[test]
    fn any_interleaving_ends_in_the_table_of_the_final_states(
        script in prop::collection::vec((0..SOURCES.len(), said()), 0..40)
    ) {
        let mut services = services();
        let mut state = State::default();
        let mut follower = BTreeMap::new();
        for (source, said) in &script {
            for (frontend, route) in services.handle(*source, events(said)) {
                prop_assert_ne!(follower.get(&frontend), route.as_ref());
                match route {
                    Some(route) => follower.insert(frontend, route),
                    None => follower.remove(&frontend),
                };
            }
            prop_assert_eq!(&follower, services.routes());
            remember(&mut state, *source, said);
            let all = (0..ADDRESSES).map(address);
            let naive = all.filter_map(|address| Some((address, expected(&state, address)?)));
            prop_assert_eq!(table(&services), naive.collect::<BTreeMap<_, _>>());
        }
        // Their past does not matter: sources that tell their last state at once make the same table.
        let mut at_once = self::services();
        for source in (0..SOURCES.len()).rev() {
            let all = state[source].values().cloned().collect();
            at_once.handle(source, events(&Said::List(all)));
        }
        prop_assert_eq!(at_once.routes(), services.routes());
    }
}
