//! Reads a Service of Kubernetes: its ClusterIPs, ports, policy and annotations.
//!
//! The rules are those of kube-proxy, because users replace it by the agent. A wish that the agent does not follow
//! becomes a note, so that the log can name it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1;

use super::notes::Note;
use super::{Refusal, is_ours};
use crate::model::{
    DEFAULT_AFFINITY_TIMEOUT, InternalTraffic, MAX_AFFINITY_TIMEOUT, Policy, RemoteBackends,
    Service, ServiceKind, ServiceName, ServicePort,
};

/// Names the source that should route a service.
const PREFERRED_SOURCE: &str = "crowfly.io/source";

/// Makes a service a global one.
const GLOBAL: &str = "service.cilium.io/global";

/// Says how a global service uses the backends of other clusters.
const AFFINITY: &str = "service.cilium.io/affinity";

/// A Service without its backends, and its wishes that the agent does not follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadService {
    /// The service. Its slices have its backends.
    pub service: Service,
    /// The wishes of the service that are not followed.
    pub notes: Vec<Note>,
}

/// Reads a Service; `None` if it is for another service proxy.
///
/// `trafficDistribution` and the annotation `service.kubernetes.io/topology-mode` are not read, as in kube-proxy,
/// because they are for the controller. It writes hints into slices, and those are followed.
///
/// # Errors
/// The field that is wrong.
pub fn read_service(
    object: &v1::Service,
    proxy_name: Option<&str>,
) -> Result<Option<ReadService>, Refusal> {
    if !is_ours(&object.metadata, proxy_name) {
        return Ok(None);
    }
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let empty = v1::ServiceSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&empty);
    let mut notes = Vec::new();
    let kind = kind(spec)?;
    let policy = Arc::new(policy(spec)?);
    let ports = ports(spec, &policy, &mut notes)?;
    unserved(spec, &kind, &mut notes);
    let annotations = object.metadata.annotations.as_ref();
    let annotations = annotations.unwrap_or(const { &BTreeMap::new() });
    let preferred = annotations.get(PREFERRED_SOURCE);
    let preferred = preferred.filter(|source| !source.is_empty());
    let service = Service {
        ports,
        preferred_source: preferred.map(|source| source.as_str().into()),
        remote: remote(annotations, &mut notes),
        ..Service::new(ServiceName::new(namespace, name), kind)
    };
    Ok(Some(ReadService { service, notes }))
}

fn kind(spec: &v1::ServiceSpec) -> Result<ServiceKind, Refusal> {
    // Such a service may have kept the address of its past.
    if spec.type_.as_deref() == Some("ExternalName") {
        return Ok(ServiceKind::ExternalName);
    }
    let all = spec.cluster_ips.as_deref().unwrap_or_default();
    let first = spec.cluster_ip.as_deref().into_iter();
    let (field, texts): (_, Vec<&str>) = if all.is_empty() {
        ("spec.clusterIP", first.collect())
    } else {
        ("spec.clusterIPs", all.iter().map(String::as_str).collect())
    };
    if texts.contains(&"None") {
        return Ok(ServiceKind::Headless);
    }
    let mut addresses = Vec::new();
    for text in texts {
        // An address that is not assigned yet.
        if text.is_empty() {
            continue;
        }
        let address = super::address(text).map_err(|reason| Refusal::new(field, reason))?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(ServiceKind::ClusterIp(addresses))
}

fn policy(spec: &v1::ServiceSpec) -> Result<Policy, Refusal> {
    let internal_traffic = match spec.internal_traffic_policy.as_deref() {
        None | Some("" | "Cluster") => InternalTraffic::Cluster,
        Some("Local") => InternalTraffic::Local,
        Some(other) => {
            let reason = format!("expected Cluster or Local, got {other:?}");
            return Err(Refusal::new("spec.internalTrafficPolicy", reason));
        }
    };
    Ok(Policy {
        affinity: affinity(spec)?,
        internal_traffic,
        distribution: None,
        // The controller has made such backends ready.
        publish_not_ready: false,
    })
}

fn affinity(spec: &v1::ServiceSpec) -> Result<Option<Duration>, Refusal> {
    match spec.session_affinity.as_deref() {
        None | Some("" | "None") => return Ok(None),
        Some("ClientIP") => {}
        Some(other) => {
            let reason = format!("expected None or ClientIP, got {other:?}");
            return Err(Refusal::new("spec.sessionAffinity", reason));
        }
    }
    let config = spec.session_affinity_config.as_ref();
    let seconds = config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    let Some(seconds) = seconds else {
        return Ok(Some(DEFAULT_AFFINITY_TIMEOUT));
    };
    match u64::try_from(seconds) {
        Ok(timeout @ 1..) if timeout <= MAX_AFFINITY_TIMEOUT.as_secs() => {
            Ok(Some(Duration::from_secs(timeout)))
        }
        _ => {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            Err(Refusal::new(
                field,
                format!("expected 1 to 86400, got {seconds}"),
            ))
        }
    }
}

fn ports(
    spec: &v1::ServiceSpec,
    policy: &Arc<Policy>,
    notes: &mut Vec<Note>,
) -> Result<Vec<ServicePort>, Refusal> {
    let mut ports = Vec::new();
    let mut numbers = BTreeSet::new();
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let wrong =
            |field: &str, reason| Refusal::new(&format!("spec.ports[{index}]{field}"), reason);
        let number = super::port(port.port).map_err(|reason| wrong(".port", reason))?;
        let protocol = super::protocol(port.protocol.as_deref());
        let Some(protocol) = protocol.map_err(|reason| wrong(".protocol", reason))? else {
            notes.push(Note::Sctp(number));
            continue;
        };
        if !numbers.insert((number, protocol)) {
            return Err(wrong("", format!("{number}/{protocol} is given twice")));
        }
        ports.push(ServicePort {
            name: port.name.as_deref().unwrap_or_default().into(),
            port: number,
            protocol,
            policy: Arc::clone(policy),
            reported_as: None,
        });
    }
    Ok(ports)
}

/// Notes the ways to a service that the agent does not route: node ports, load balancers, external IPs.
fn unserved(spec: &v1::ServiceSpec, kind: &ServiceKind, notes: &mut Vec<Note>) {
    if !matches!(kind, ServiceKind::ClusterIp(_)) {
        return;
    }
    let mut ports = spec.ports.iter().flatten();
    if ports.any(|port| port.node_port.is_some_and(|port| port != 0)) {
        notes.push(Note::NodePorts);
    }
    if spec.type_.as_deref() == Some("LoadBalancer") {
        notes.push(Note::LoadBalancer);
    }
    if spec.external_ips.iter().flatten().next().is_some() {
        notes.push(Note::ExternalIps);
    }
}

fn remote(annotations: &BTreeMap<String, String>, notes: &mut Vec<Note>) -> RemoteBackends {
    let is = |key: &str, value: &str| {
        let said = annotations.get(key);
        said.is_some_and(|said| said.eq_ignore_ascii_case(value))
    };
    if !is(GLOBAL, "true") {
        return RemoteBackends::Ignored;
    }
    match annotations.get(AFFINITY) {
        Some(_) if is(AFFINITY, "local") => RemoteBackends::Fallback,
        Some(_) if is(AFFINITY, "remote") => RemoteBackends::Preferred,
        Some(other) if !other.is_empty() && !is(AFFINITY, "none") => {
            notes.push(Note::Affinity(other.clone()));
            RemoteBackends::Added
        }
        _ => RemoteBackends::Added,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn service(spec: v1::ServiceSpec) -> v1::Service {
        let mut object = v1::Service {
            spec: Some(spec),
            ..v1::Service::default()
        };
        object.metadata.name = Some("web".to_owned());
        object.metadata.namespace = Some("shop".to_owned());
        object
    }

    fn refused(spec: v1::ServiceSpec) -> String {
        read_service(&service(spec), None).unwrap_err().to_string()
    }

    #[test]
    fn an_old_object_has_its_address_in_one_field_alone() {
        let object = service(v1::ServiceSpec {
            cluster_ip: Some("10.96.0.7".to_owned()),
            ..v1::ServiceSpec::default()
        });
        let read = read_service(&object, None).unwrap().unwrap();
        let address: IpAddr = "10.96.0.7".parse().unwrap();
        assert_eq!(read.service.cluster_ips(), [address]);
    }

    #[test]
    fn a_refusal_names_the_field_and_what_was_expected() {
        let spec = v1::ServiceSpec {
            cluster_ips: Some(vec!["10.96.0.300".to_owned()]),
            ..v1::ServiceSpec::default()
        };
        assert_eq!(
            refused(spec),
            "spec.clusterIPs: expected an IP address, got \"10.96.0.300\""
        );
        let port = v1::ServicePort {
            port: 70_000,
            ..v1::ServicePort::default()
        };
        let spec = v1::ServiceSpec {
            ports: Some(vec![port]),
            ..v1::ServiceSpec::default()
        };
        assert_eq!(
            refused(spec),
            "spec.ports[0].port: expected 1 to 65535, got 70000"
        );
        let spec = v1::ServiceSpec {
            session_affinity: Some("ClientIP".to_owned()),
            session_affinity_config: Some(v1::SessionAffinityConfig {
                client_ip: Some(v1::ClientIPConfig {
                    timeout_seconds: Some(-1),
                }),
            }),
            ..v1::ServiceSpec::default()
        };
        assert_eq!(
            refused(spec),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: expected 1 to 86400, got -1"
        );
    }

    /// N-60: a global service says what it does with the backends of other clusters.
    #[test]
    fn annotations_say_the_use_of_remote_backends() {
        let remote_of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let annotations = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let mut notes = Vec::new();
            (remote(&annotations.collect(), &mut notes), notes.len())
        };
        for (annotations, expected) in [
            (&[][..], (RemoteBackends::Ignored, 0)),
            (&[(GLOBAL, "false")], (RemoteBackends::Ignored, 0)),
            (&[(AFFINITY, "local")], (RemoteBackends::Ignored, 0)),
            (&[(GLOBAL, "true")], (RemoteBackends::Added, 0)),
            (
                &[(GLOBAL, "true"), (AFFINITY, "none")],
                (RemoteBackends::Added, 0),
            ),
            (
                &[(GLOBAL, "true"), (AFFINITY, "local")],
                (RemoteBackends::Fallback, 0),
            ),
            (
                &[(GLOBAL, "true"), (AFFINITY, "remote")],
                (RemoteBackends::Preferred, 0),
            ),
            (
                &[(GLOBAL, "true"), (AFFINITY, "near")],
                (RemoteBackends::Added, 1),
            ),
        ] {
            assert_eq!(remote_of(annotations), expected, "{annotations:?}");
        }
    }
}
