//! A service that is too large for the agent is refused, and others are not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crowfly_node::agent::Agent;
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::model::{Backend, Place, Service, ServiceName, ServicePort};
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_node::{file, select::Frontend};
use crowfly_source::Event;

/// N-78: a service of 1,000 frontends and 1,000 endpoints is refused by name before it has a route. Another service of
/// the same batch routes.
#[test]
fn a_service_that_is_too_large_is_refused_alone() {
    let mut agent = agent(MemoryMaps::default());
    let outcome = agent.handle(
        0,
        vec![
            Event::Init,
            told(service("greedy", 1000, 1000)),
            told(service("web", 1, 2)),
            Event::InitDone,
        ],
    );
    assert_eq!(outcome.switched, 1);
    assert_eq!(routes(&agent), ["10.96.2.1:1/TCP shop/web 2"]);
    let said = "shop/greedy (kvstore): its 1000 frontends with 1000 endpoints are too many: one service may have \
                65536 pairs of a frontend and an endpoint (a quarter of --max-backends); it is not routed anew, and \
                its former routes stay";
    assert_eq!(agent.take_warnings(), [said]);
    let view = agent.view().unwrap();
    let refused: Vec<_> = view.refused.iter().map(|it| &*it.service).collect();
    assert_eq!(refused, ["shop/greedy"]);
    // It is said once, and taken back when the service is smaller, or is gone.
    agent.handle(0, vec![told(service("greedy", 1001, 1000))]);
    assert_eq!(agent.take_warnings(), Vec::<String>::new());
    agent.handle(0, vec![told(service("greedy", 1, 1))]);
    assert_eq!(agent.view().unwrap().refused, []);
    assert_eq!(agent.services().routes().len(), 2);
    agent.handle(0, vec![told(service("greedy", 1000, 1000))]);
    agent.handle(0, vec![Event::Delete(ServiceName::new("shop", "greedy"))]);
    assert_eq!(agent.view().unwrap().refused, []);
    assert_eq!(agent.services().routes().len(), 1);
}

/// N-78: a service that grows too large keeps its last routes, also over a restart of the agent. They go with it.
#[test]
fn a_service_that_grows_too_large_keeps_its_routes() {
    let mut agent = agent(MemoryMaps::default());
    let listing = |services: Vec<Service>| {
        let services = services.into_iter().map(told);
        let events = [Event::Init].into_iter().chain(services);
        events.chain([Event::InitDone]).collect::<Vec<_>>()
    };
    agent.handle(0, listing(vec![service("greedy", 2, 3)]));
    let before = agent.reconciler().maps().clone();
    agent.handle(0, vec![told(service("greedy", 1000, 1000))]);
    assert_eq!(agent.reconciler().maps().services, before.services);

    let mut next = self::agent(agent.reconciler().maps().clone());
    next.handle(0, listing(vec![service("greedy", 1000, 1000)]));
    next.handle(0, vec![told(service("web", 1, 2))]);
    let maps = &next.reconciler().maps().services;
    assert!(before.services.keys().all(|it| maps.contains_key(it)));
    assert_eq!(maps.len(), before.services.len() + 1);

    // What the service has no more goes when it is accepted again.
    next.handle(0, vec![told(service("greedy", 1, 3))]);
    assert_eq!(next.reconciler().maps().services.len(), 2);
    next.handle(0, vec![Event::Delete(ServiceName::new("shop", "greedy"))]);
    assert_eq!(next.reconciler().maps().services.len(), 1);
}

/// N-78: frontends count for the endpoints of their port and IP family alone, so a large dual-stack service routes.
#[test]
fn endpoints_of_other_ports_and_families_do_not_count() {
    let mut services = Services::new(vec!["kvstore".into()], Place::default());
    services.set_room(4 * 2000);
    let mut dual = service("web", 2, 500);
    let v6 = file_service("fd96::1", "fd44::1").backends[0].clone();
    dual.backends = dual.backends.iter().cloned().chain(vec![v6; 900]).collect();
    services.handle(0, vec![told(dual)]);
    assert_eq!(services.routes().len(), 2);
    // 2 frontends of IPv4 with 1,001 endpoints.
    let more = service("web", 2, 1001);
    services.handle(0, vec![told(more)]);
    assert_eq!(services.take_warnings().len(), 1);
}

fn agent(maps: MemoryMaps) -> Agent<MemoryMaps> {
    let services = Services::new(vec!["kvstore".into()], Place::default());
    Agent::new(services, maps).unwrap()
}

fn told(service: Service) -> ServiceEvent {
    Event::Upsert(service.name.clone(), Arc::new(service))
}

fn routes(agent: &Agent<MemoryMaps>) -> Vec<String> {
    let services = agent.services();
    let line = |frontend: &Frontend| {
        let owner = services.owner(frontend).unwrap();
        let targets = services.routes()[frontend].targets.len();
        format!("{frontend} {} {targets}", owner.service.name)
    };
    services.routes().keys().map(line).collect()
}

/// A service with so many ports at one ClusterIP, and so many endpoints for each of them.
fn service(name: &str, ports: u16, endpoints: u32) -> Service {
    let address = match name {
        "greedy" => "10.96.1.1",
        _ => "10.96.2.1",
    };
    let mut service = file_service(address, "10.244.0.1");
    service.name = ServiceName::new("shop", name);
    let (port, backend) = (service.ports[0].clone(), service.backends[0].clone());
    let ports = (1..=ports).map(|number| ServicePort {
        port: number,
        ..port.clone()
    });
    service.ports = ports.collect();
    let first = u32::from(Ipv4Addr::new(10, 244, 0, 1));
    let backends = (0..endpoints).map(|nth| Backend {
        addresses: [IpAddr::V4(Ipv4Addr::from(first + nth))]
            .into_iter()
            .collect(),
        ..backend.clone()
    });
    service.backends = backends.collect();
    service
}

fn file_service(address: &str, endpoint: &str) -> Service {
    let text = format!(
        "services: [{{ name: web, cluster_ips: [\"{address}\"], ports: [{{ port: 80 }}], \
         endpoints: [{{ addresses: [\"{endpoint}\"], ports: [{{ port: 8080 }}] }}] }}]"
    );
    let mut services = file::read("test.yaml".as_ref(), &text).unwrap();
    services.remove(0)
}
