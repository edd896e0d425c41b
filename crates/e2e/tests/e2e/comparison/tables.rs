//! Random route tables and calls to them, from a fixed seed.
//!
//! The routes of a table lead to different clusters, so that an outcome shows which route was
//! taken.

use crowfly_e2e::comparison::Call;
use crowfly_e2e::resources::{self, ROUTES};
use fastrand::Rng;
use serde_json::{Value, json};

use super::matchers::{self, PATHS, chance, pick};

/// The clusters, which are also the names of their backends. No table has more routes that forward.
pub(super) const CLUSTERS: [&str; 20] = [
    "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12", "c13", "c14",
    "c15", "c16", "c17", "c18", "c19",
];

/// The authority of calls, and domains of which one or more match it.
const AUTHORITIES: [(&str, [&str; 4]); 3] = [
    (
        "shop.example.com",
        ["shop.example.com", "*.example.com", "shop.*", "*"],
    ),
    (
        "SHOP.Example.com",
        ["*.EXAMPLE.com", "*.com", "shop.example.*", "*"],
    ),
    (
        "pay.internal",
        ["*.example.com", "pay.*", "*.internal.com", "*"],
    ),
];

/// A route table with the calls to it.
pub(super) struct Table {
    /// The name of the listener and of the routes.
    pub(super) name: String,
    /// The route configuration.
    pub(super) routes: Value,
    /// The kinds of conditions of the route that leads to each cluster.
    pub(super) kinds: Vec<Vec<&'static str>>,
    /// The calls.
    pub(super) calls: Vec<Call>,
}

impl Table {
    /// A table whose outcomes are certain.
    pub(super) fn certain(rng: &mut Rng, number: usize, calls: usize) -> Self {
        Self::generate(rng, number, calls, |rng, matcher, forward, others| {
            let mut kinds = Vec::new();
            if chance(rng, 25) {
                let (fraction, kind) = certain_fraction(rng);
                matcher["runtime_fraction"] = fraction;
                kinds.push(kind);
            }
            if chance(rng, 20) {
                *forward = weighted(&[
                    (forward["cluster"].as_str().unwrap_or_default(), 5),
                    (others, 0),
                ]);
                kinds.push("weight 0");
            }
            kinds
        })
    }

    /// A table whose outcomes are drawn by chance where the configuration says so.
    pub(super) fn random(rng: &mut Rng, number: usize, calls: usize) -> Self {
        Self::generate(rng, number, calls, |rng, matcher, forward, others| {
            let mut kinds = Vec::new();
            if chance(rng, 60) {
                let numerator = pick(rng, &[1_000, 2_500, 5_000, 9_000]);
                matcher["runtime_fraction"] = fraction(numerator, "TEN_THOUSAND");
                kinds.push("runtime_fraction by chance");
            }
            if chance(rng, 60) {
                let weights = pick(rng, &[(137, 13), (1, 1), (1, 3), (900_000, 100_000)]);
                let cluster = forward["cluster"].as_str().unwrap_or_default();
                *forward = weighted(&[(cluster, weights.0), (others, weights.1)]);
                kinds.push("weighted_clusters");
            }
            kinds
        })
    }

    /// A table of random routes. `vary` may change the match and the action of a route that
    /// forwards, and returns the kinds of its changes. Its last argument is another cluster.
    fn generate(
        rng: &mut Rng,
        number: usize,
        calls: usize,
        mut vary: impl FnMut(&mut Rng, &mut Value, &mut Value, &str) -> Vec<&'static str>,
    ) -> Self {
        let name = format!("table-{number}");
        let (authority, domains) = pick(rng, &AUTHORITIES);
        let mut hosts = Vec::new();
        let mut kinds = Vec::new();
        let mut clusters = CLUSTERS.iter();
        for domain in domains {
            if domain != "*" && !chance(rng, 40) {
                continue;
            }
            let mut routes = Vec::new();
            for _ in 0..rng.usize(3..12) {
                let Some(cluster) = clusters.next() else {
                    break;
                };
                let (route, kinds_of_route) = route(rng, cluster, &mut vary);
                routes.push(route);
                kinds.push(kinds_of_route);
            }
            hosts.push(json!({ "name": domain, "domains": [domain], "routes": routes }));
        }
        let calls = (0..calls).map(|_| Call {
            authority: Some((*authority).to_owned()),
            metadata: matchers::metadata(rng),
            ..Call::new(&format!("xds:///{name}"), pick(rng, &PATHS))
        });
        Self {
            calls: calls.collect(),
            routes: json!({ "@type": ROUTES, "name": name, "virtual_hosts": hosts }),
            kinds,
            name,
        }
    }

    /// The resources of the table, without its clusters.
    pub(super) fn resources(&self) -> [Value; 2] {
        [resources::api_listener(&self.name), self.routes.clone()]
    }
}

/// A route to `cluster`, with the kinds of its conditions.
fn route(
    rng: &mut Rng,
    cluster: &str,
    vary: &mut impl FnMut(&mut Rng, &mut Value, &mut Value, &str) -> Vec<&'static str>,
) -> (Value, Vec<&'static str>) {
    let mut kinds = Vec::new();
    let mut matcher = matchers::path(rng, &mut kinds);
    let headers: Vec<Value> = (0..pick(rng, &[0, 1, 1, 1, 2]))
        .map(|_| matchers::header(rng, &mut kinds))
        .collect();
    matcher["headers"] = json!(headers);
    match rng.u32(..20) {
        // Left out, even if its other conditions match (gRFC A28).
        0 => matcher["query_parameters"] = json!([{ "name": "q", "present_match": true }]),
        1 => matcher = json!({ "path": "/no/such/method" }),
        2 => return (json!({ "match": matcher, "redirect": {} }), kinds),
        3 => {
            return (
                json!({ "match": matcher, "non_forwarding_action": {} }),
                kinds,
            );
        }
        4 => {
            return (
                json!({ "match": matcher, "route": { "cluster_header": "x-user" } }),
                kinds,
            );
        }
        _ => {}
    }
    let mut forward = json!({ "cluster": cluster });
    let another = pick(rng, &CLUSTERS);
    kinds.extend(vary(rng, &mut matcher, &mut forward, another));
    (json!({ "match": matcher, "route": forward }), kinds)
}

fn certain_fraction(rng: &mut Rng) -> (Value, &'static str) {
    let denominators = [
        ("HUNDRED", 100),
        ("TEN_THOUSAND", 10_000),
        ("MILLION", 1_000_000),
    ];
    let (denominator, all) = pick(rng, &denominators);
    match rng.u32(..3) {
        0 => (fraction(0, denominator), "runtime_fraction 0"),
        // More than all is all.
        1 => (fraction(2 * all, denominator), "runtime_fraction 200 %"),
        _ => (fraction(all, denominator), "runtime_fraction 100 %"),
    }
}

fn fraction(numerator: u32, denominator: &str) -> Value {
    json!({ "default_value": { "numerator": numerator, "denominator": denominator } })
}

fn weighted(clusters: &[(&str, u32)]) -> Value {
    let one = |(name, weight): &(&str, u32)| json!({ "name": name, "weight": weight });
    let clusters: Vec<Value> = clusters.iter().map(one).collect();
    json!({ "weighted_clusters": { "clusters": clusters } })
}
