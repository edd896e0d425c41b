//! The services of the benchmark in nftables, in the form that kube-proxy writes in its nftables
//! mode.
//!
//! A verdict map leads from a ClusterIP, protocol and port to a chain of the service. That chain
//! marks connections that must be masqueraded, and chooses a backend by `numgen`. A chain of the
//! backend rewrites the destination, and the kernel tracks the connection. Base chains and checks
//! for services without backends are there, too, because each packet of a new connection passes
//! them.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::shape::{BACKEND_PORT, FRONTEND_PORT, Shape};

/// The addresses of pods: connections from elsewhere are masqueraded.
const PODS: &str = "192.0.2.0/24";

const TABLE: &str = "table ip kube-proxy";

/// Everything but the services.
const BASE: &str = "\
  chain mark-for-masquerade { mark set mark or 0x4000; }
  chain masquerading {
    mark and 0x4000 == 0 return
    mark set mark xor 0x4000
    masquerade fully-random
  }
  chain reject-chain { reject; }
  map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
  map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
  map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
  map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
  map service-nodeports { type inet_proto . inet_service : verdict; }
  set cluster-ips { type ipv4_addr; }
  set nodeport-ips { type ipv4_addr; }
  chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }
  chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
  chain nodeport-endpoints-check { ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports; }
  chain cluster-ips-check { ip daddr @cluster-ips reject; }
  chain services {
    ip daddr . meta l4proto . th dport vmap @service-ips
    ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
  }
  chain filter-prerouting {
    type filter hook prerouting priority -110;
    ct state new jump firewall-check
  }
  chain filter-input {
    type filter hook input priority -110;
    ct state new jump nodeport-endpoints-check
    ct state new jump service-endpoints-check
  }
  chain filter-forward {
    type filter hook forward priority -110;
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
  }
  chain filter-output {
    type filter hook output priority -110;
    ct state new jump service-endpoints-check
    ct state new jump firewall-check
  }
  chain filter-output-post-dnat {
    type filter hook output priority -90;
    ct state new jump cluster-ips-check
  }
  chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
  chain nat-output { type nat hook output priority -100; jump services; }
  chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
";

/// Deletes the table, if it is there.
pub(super) fn clear() -> String {
    format!("add {TABLE}\ndelete {TABLE}\n")
}

/// All rules. The table must not be there yet.
pub(super) fn ruleset(shape: &Shape) -> String {
    let mut text = format!("{TABLE} {{\n{BASE}");
    for service in 0..shape.services {
        text.push_str(&chains(service, &shape.backends_of(service)));
    }
    text.push_str("}\n");
    let ips = (0..shape.services).map(|service| Shape::frontend(service).to_string());
    let ips: Vec<_> = ips.collect();
    let verdicts = (0..shape.services).map(|service| {
        let ip = Shape::frontend(service);
        format!("{ip} . tcp . {FRONTEND_PORT} : goto service-s{service}")
    });
    let verdicts: Vec<_> = verdicts.collect();
    let table = "add element ip kube-proxy";
    // Writing to a string does not fail.
    let _ = writeln!(text, "{table} cluster-ips {{ {} }}", ips.join(", "));
    let _ = writeln!(text, "{table} service-ips {{ {} }}", verdicts.join(", "));
    text
}

/// The rules that give a service other backends.
pub(super) fn change(service: u32, before: &[Ipv4Addr], after: &[Ipv4Addr]) -> String {
    let mut text = format!("{TABLE} {{\n");
    for backend in after {
        text.push_str(&backend_chain(service, *backend));
    }
    text.push_str("}\n");
    let chain = |name: String| format!("chain ip kube-proxy {name}");
    let _ = writeln!(text, "flush {}", chain(format!("service-s{service}")));
    let _ = writeln!(text, "{TABLE} {{\n{}}}", service_chain(service, after));
    for backend in before.iter().filter(|backend| !after.contains(backend)) {
        let name = backend_name(service, *backend);
        let _ = writeln!(text, "flush {}", chain(name.clone()));
        let _ = writeln!(text, "delete {}", chain(name));
    }
    text
}

fn chains(service: u32, backends: &[Ipv4Addr]) -> String {
    let endpoints = backends
        .iter()
        .map(|backend| backend_chain(service, *backend));
    let endpoints: String = endpoints.collect();
    endpoints + &service_chain(service, backends)
}

fn backend_chain(service: u32, backend: Ipv4Addr) -> String {
    format!(
        "  chain {} {{\n    ip saddr {backend} jump mark-for-masquerade\n    \
         meta l4proto tcp dnat to {backend}:{BACKEND_PORT}\n  }}\n",
        backend_name(service, backend)
    )
}

fn service_chain(service: u32, backends: &[Ipv4Addr]) -> String {
    let ip = Shape::frontend(service);
    let choices = backends.iter().enumerate();
    let choices = choices
        .map(|(index, backend)| format!("{index} : goto {}", backend_name(service, *backend)));
    let choices: Vec<_> = choices.collect();
    format!(
        "  chain service-s{service} {{\n    \
         ip daddr {ip} tcp dport {FRONTEND_PORT} ip saddr != {PODS} jump mark-for-masquerade\n    \
         numgen random mod {} vmap {{ {} }}\n  }}\n",
        backends.len(),
        choices.join(", ")
    )
}

fn backend_name(service: u32, backend: Ipv4Addr) -> String {
    format!("endpoint-s{service}__{backend}/{BACKEND_PORT}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        services: 2,
        backends: 2,
    };

    #[test]
    fn a_service_is_a_verdict_and_a_chain_for_it_and_for_each_backend() {
        let text = ruleset(&SHAPE);
        for expected in [
            "10.96.0.2 . tcp . 80 : goto service-s1",
            "chain service-s1 {\n    ip daddr 10.96.0.2 tcp dport 80 ip saddr != 192.0.2.0/24 \
             jump mark-for-masquerade\n    numgen random mod 2 vmap { \
             0 : goto endpoint-s1__198.18.0.3/8080, 1 : goto endpoint-s1__198.18.0.4/8080 }\n",
            "chain endpoint-s1__198.18.0.4/8080 {\n    ip saddr 198.18.0.4 jump \
             mark-for-masquerade\n    meta l4proto tcp dnat to 198.18.0.4:8080\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
        }
    }

    #[test]
    fn a_change_touches_one_service() {
        let before = SHAPE.backends_of(1);
        let text = change(1, &before, &before[..1]);
        assert!(
            text.contains("flush chain ip kube-proxy service-s1\n"),
            "{text}"
        );
        assert!(text.contains("numgen random mod 1 vmap"), "{text}");
        assert!(
            text.ends_with("delete chain ip kube-proxy endpoint-s1__198.18.0.4/8080\n"),
            "{text}"
        );
        assert!(!text.contains("s0"), "{text}");
    }
}
