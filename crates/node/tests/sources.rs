//! Several sources as one table: precedence, preferred sources and global services. [`golden`] says how
//! the files are read.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;

use crowfly_node::model::{Place, ServiceName};
use crowfly_node::services::Services;
use crowfly_source::Event;
use golden::{Situation, check, listed, table};

/// N-57: a ClusterIP belongs to the first source that has it, on every port, unless the first service
/// prefers another source that has it.
#[test]
fn the_order_of_sources_decides_unless_a_service_prefers_one() {
    check("sources/precedence");
}

/// N-60: a global service has the backends of other clusters, by its affinity; others have not.
#[test]
fn global_services_have_the_backends_of_other_clusters() {
    check("sources/global");
}

/// N-60: backends of other clusters follow the rules of ports, families, readiness and policies.
#[test]
fn backends_of_other_clusters_follow_the_same_rules() {
    check("sources/global_rules");
}

/// N-51: on a node without a name no backend is local. The services that want one are logged once, together.
#[test]
fn a_node_without_a_name_warns_of_local_services() {
    let local = |number: usize| {
        format!(
            "- {{ name: s{number:02}, cluster_ips: [10.96.0.{number}], ports: [{{ port: 80 }}], \
             internal_traffic_policy: Local, endpoints: [] }}\n"
        )
    };
    let mut services = Services::new(vec!["file".into()], Place::default());
    let yaml = format!("services:\n{}{}", local(1), local(2));
    services.handle(0, listed(&yaml));
    let rest = "internalTrafficPolicy is Local, and this node has no name: connections to it end with EHOSTUNREACH; \
                --node-name gives a name";
    let expected = format!("default/s01, default/s02: {rest}");
    assert_eq!(services.take_warnings(), [expected]);
    services.handle(0, listed(&yaml));
    assert_eq!(services.take_warnings(), [""; 0]);

    let many: String = (1..=14).map(local).collect();
    services.handle(0, listed(&format!("services:\n{many}")));
    let [warning] = &services.take_warnings()[..] else {
        panic!("expected one warning");
    };
    assert!(warning.starts_with("default/s03, "), "{warning}");
    let end = format!("default/s12 and 2 more: {rest}");
    assert!(warning.ends_with(&end), "{warning}");

    let here = Place {
        node: Some("here".into()),
        zone: None,
    };
    let mut services = Services::new(vec!["file".into()], here);
    services.handle(0, listed(&yaml));
    assert_eq!(services.take_warnings(), [""; 0]);
}

const KUBERNETES: usize = 0;
const KVSTORE: usize = 1;

/// N-60: a change of the remote service reaches the local one, in each direction and in any order.
#[test]
fn remote_backends_come_and_go() {
    let local = listed(&web("remote_backends: Fallback, endpoints: []"));
    let global = "10.96.0.1:80/TCP default/web from kubernetes\n";
    let refused = format!("{global}  -> ECONNREFUSED\n");
    let west = format!("{global}  -> 10.245.0.1:8080 weight 1 in cluster west\n");
    let remote = |address: &str| {
        listed(&format!(
            "services: [{{ name: web, shared: true, endpoints: \
             [{{ addresses: [{address}], ports: [{{ port: 8080 }}], cluster: west }}] }}]"
        ))
    };
    let mut services = services();
    assert_eq!(services.handle(KUBERNETES, local.clone()).len(), 1);
    assert_eq!(table(&services), refused);
    assert_eq!(services.handle(KVSTORE, remote("10.245.0.1")).len(), 1);
    assert_eq!(table(&services), west);
    assert_eq!(services.handle(KVSTORE, remote("10.245.0.1")), []);
    services.handle(KVSTORE, remote("10.245.0.2"));
    assert_ne!(table(&services), west);
    services.handle(KVSTORE, vec![Event::Delete(name())]);
    assert_eq!(table(&services), refused);
    // A listing without it takes it away as well.
    services.handle(KVSTORE, remote("10.245.0.1"));
    services.handle(KVSTORE, vec![Event::Init, Event::InitDone]);
    assert_eq!(table(&services), refused);

    let mut reverse = self::services();
    assert_eq!(reverse.handle(KVSTORE, remote("10.245.0.1")), []);
    reverse.handle(KUBERNETES, local);
    assert_eq!(table(&reverse), west);
}

/// A preference for a source that does not exist is said once, and ignored.
#[test]
fn an_unknown_preference_is_said_once() {
    let mut services = services();
    let misled = web("preferred_source: xsd, endpoints: []");
    services.handle(KUBERNETES, listed(&misled));
    services.handle(
        KUBERNETES,
        listed(&misled.replace("[10.96.0.1]", "[10.96.0.2]")),
    );
    let said = "default/web (kubernetes) prefers the source \"xsd\", which is none of kubernetes, kvstore; \
                that is ignored";
    assert_eq!(services.take_warnings(), [said]);
    assert_eq!(services.routes().len(), 1);
    // Another name, or the same one after it was right, is said again.
    services.handle(KUBERNETES, listed(&misled.replace("xsd", "sdx")));
    assert_eq!(services.take_warnings().len(), 1);
    services.handle(KUBERNETES, listed(&misled.replace("xsd", "kvstore")));
    assert_eq!(services.take_warnings().len(), 0);
    services.handle(KUBERNETES, listed(&misled));
    assert_eq!(services.take_warnings(), [said]);
}

/// The order of sources is a setting: the same services in another order have other owners.
#[test]
fn another_order_has_other_owners() {
    let mut situation = Situation::read("sources/precedence");
    let owners = |situation: &Situation| {
        let services = situation.services();
        let owners = services.routes().keys();
        let owners = owners.map(|it| services.owner(it).unwrap().source.to_string());
        owners.collect::<Vec<_>>()
    };
    let before = owners(&situation);
    situation.reverse();
    assert_ne!(owners(&situation), before);
    situation.reverse();
    assert_eq!(owners(&situation), before);
}

fn services() -> Services {
    let names = ["kubernetes", "kvstore"].map(Into::into);
    Services::new(names.into(), Place::default())
}

fn web(more: &str) -> String {
    format!(
        "services: [{{ name: web, cluster_ips: [10.96.0.1], ports: [{{ port: 80 }}], {more} }}]"
    )
}

fn name() -> ServiceName {
    ServiceName::new("default", "web")
}
