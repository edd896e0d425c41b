//! A service in a view: the fields that are written there, over those of the service that all
//! clients have. The other fields follow the base, so a change of the base reaches the view too.

use crowfly_source::yaml::{Node, Problem};

use super::Service;

/// The fields of a service that a view gives.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServicePatch {
    /// A service with the given fields, and defaults elsewhere.
    values: Service,
    /// The names of the given fields.
    given: Vec<String>,
    /// The service as it is written, for the places of problems.
    node: Node,
}

/// Sets the fields that are given, of all that are listed.
macro_rules! set_given {
    ($given:expr, $from:expr, $into:expr, $($field:ident)*) => {
        for key in $given {
            match key.as_str() {
                $(stringify!($field) => $into.$field.clone_from(&$from.$field),)*
                _ => {}
            }
        }
    };
}

impl ServicePatch {
    /// Reads the service at `path` of its document.
    pub(crate) fn read(node: &Node, path: &str) -> Result<Self, Problem> {
        let values = node.read(path)?;
        let given = node.entries().iter().map(|(key, _)| key.text.clone());
        Ok(Self {
            values,
            given: given.collect(),
            node: node.clone(),
        })
    }

    /// The name of the service.
    pub(crate) fn name(&self) -> &str {
        &self.values.name
    }

    /// The service as it is written.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// True if both give the same fields, wherever they are written.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.given == other.given && self.values == other.values
    }

    /// The service of the view: the given fields over those of `base`. Endpoints with and without localities
    /// replace each other, and so do one ClusterIP and several.
    pub(crate) fn over(&self, base: Option<&Service>) -> Service {
        let Some(base) = base else {
            return self.values.clone();
        };
        let mut service = base.clone();
        let gives = |key: &str| self.given.iter().any(|given| given == key);
        if gives("endpoints") || gives("localities") {
            service.endpoints.clear();
            service.localities.clear();
        }
        if gives("cluster_ip") || gives("cluster_ips") {
            service.cluster_ip = None;
            service.cluster_ips.clear();
        }
        set_given!(&self.given, self.values, service,
            client_ip_affinity cluster_ip cluster_ips drops endpoints fallback fallback_as fault hash
            internal_traffic_policy limits load_reports localities outlier_detection policy ports retry routes
            session_affinity timeout tls traffic_distribution);
        service
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(text: &str) -> ServicePatch {
        let nodes = Node::parse(text).unwrap();
        ServicePatch::read(&nodes[0], "").unwrap()
    }

    /// Every field of a service, none with its default.
    const ALL: &str = "
name: a
localities: [{ zone: b, endpoints: [{ address: '10.0.0.2:80' }] }]
endpoints: [{ address: '10.0.0.1:80' }]
fallback: [b]
fallback_as: resource
policy: least_request
limits: { max_requests: 5 }
drops: { all: 10% }
outlier_detection: { success_rate: {} }
session_affinity: { cookie: { name: c } }
load_reports: true
tls: { ca: system, san: any }
routes: [{ match: { path: /a/b }, to: b }]
timeout: 1s
retry: { attempts: 3 }
fault: { abort: { fraction: 1%, status: unavailable } }
hash: [{ header: user }]
cluster_ip: 10.96.0.1
cluster_ips: [10.96.0.2]
ports: [{ port: 80 }]
client_ip_affinity: true
internal_traffic_policy: Local
traffic_distribution: PreferSameZone
";

    /// V-04: a view can give every field of a service.
    #[test]
    fn every_field_can_be_given() {
        let all = patch(ALL);
        let base = patch("name: a").values;
        assert_eq!(all.over(Some(&base)), all.values);
        let unknown = Node::parse("{ name: a, other: 1 }").unwrap();
        let problem = ServicePatch::read(&unknown[0], "").unwrap_err().message;
        let (_, fields) = problem.split_once("one of ").unwrap();
        for field in fields.split(", ") {
            assert!(
                all.given.iter().any(|given| given == field),
                "{field} is not in the test"
            );
        }
    }

    /// V-04: fields that a view does not give are those of the service.
    #[test]
    fn other_fields_stay() {
        let all = patch(ALL).values;
        let kept = patch("{ name: a, timeout: 2s }").over(Some(&all));
        assert_ne!(kept, all);
        assert_eq!(patch("{ name: a, timeout: 1s }").over(Some(&kept)), all);
    }

    /// V-04: endpoints of a view replace localities.
    #[test]
    fn endpoints_replace_localities() {
        let zones =
            patch("{ name: a, localities: [{ zone: b }], cluster_ips: [10.96.0.2] }").values;
        let flat =
            patch("{ name: a, endpoints: [{ address: '10.0.0.1:80' }], cluster_ip: 10.96.0.1 }");
        assert_eq!(flat.over(Some(&zones)), flat.values);
    }
}
