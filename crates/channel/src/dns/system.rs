//! The default resolver: it looks names up by the system's configuration.
//!
//! The resolver must agree with other programs on the machine, because operators test a name with those.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Lookup, LookupError, Resolve};

/// The limit of a lookup, with every name server, search domain and repetition.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Names the system's configuration in errors.
const CONFIGURATION: &str = "the system's DNS configuration";

/// Looks up names in the hosts file first. For other names it asks the name servers of the system for IPv4
/// and IPv6 addresses, with its search domains (`/etc/resolv.conf` on Unix).
///
/// The resolver keeps nothing from one lookup to the next. Answers are not cached, because the
/// channel asks only when an answer may have changed. The configuration is read for each lookup, so
/// that a change of it needs no restart. If it cannot be read, the lookup fails.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    name_servers: Option<Vec<SocketAddr>>,
    timeout: Duration,
}

impl SystemResolver {
    /// A resolver with the name servers of the system.
    pub fn new() -> Self {
        Self {
            name_servers: None,
            timeout: TIMEOUT,
        }
    }

    /// A resolver with this name server only, and without search domains.
    pub fn with_name_server(address: SocketAddr) -> Self {
        Self {
            name_servers: Some(vec![address]),
            timeout: TIMEOUT,
        }
    }

    /// Limits a whole lookup. The default is 30 seconds. A lookup ends earlier if every name server is silent for the
    /// time and the attempts of the system's configuration. All attempts together take half of the limit at most.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Plans the lookup of `host`; `read` reads the configuration of the system.
    fn plan(
        &self,
        host: Name,
        hosts: &Hosts,
        read: impl FnOnce() -> Configuration,
    ) -> Result<Plan, LookupError> {
        let addresses = in_hosts(hosts, &host);
        if !addresses.is_empty() {
            return Ok(Plan::Known(addresses));
        }
        let (config, mut options) = match &self.name_servers {
            Some(servers) => (explicit(servers), ResolverOpts::default()),
            None => read().map_err(|error| other(CONFIGURATION, &error))?,
        };
        self.adjust(&mut options);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        let resolver = builder
            .build()
            .map_err(|error| other(CONFIGURATION, &error))?;
        Ok(Plan::Ask(Box::new(resolver), host))
    }

    fn adjust(&self, options: &mut ResolverOpts) {
        // If one family is never answered, there must be time left to report the other.
        let attempts = u32::try_from(options.attempts).unwrap_or(u32::MAX).max(1);
        let share = self.timeout / attempts.saturating_mul(2);
        options.timeout = options.timeout.min(share);
        // resolv.conf counts all attempts, hickory only the repetitions.
        options.attempts = options.attempts.saturating_sub(1);
        options.cache_size = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Never;
    }

    async fn look_up(self, host: String) -> Result<Vec<IpAddr>, LookupError> {
        let name = Name::from_str_relaxed(&host)
            .map_err(|error| other("not a host name", &error.into()))?;
        let plan = spawn_blocking(move || {
            let hosts = Hosts::from_system().unwrap_or_default();
            self.plan(name, &hosts, read_system_conf)
        })
        .await;
        let plan = plan.map_err(|error| LookupError::Other(error.to_string()))?;
        match plan? {
            Plan::Ask(resolver, name) => ask(&resolver, name).await,
            Plan::Known(addresses) => Ok(addresses),
        }
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str) -> Lookup {
        if let Ok(address) = host.parse() {
            return Box::pin(async move { Ok(vec![address]) });
        }
        let limit = self.timeout;
        let lookup = self.clone().look_up(host.to_owned());
        Box::pin(async move {
            let outcome = timeout(limit, lookup).await;
            outcome.unwrap_or(Err(LookupError::TimedOut(limit)))
        })
    }
}

type Configuration = Result<(ResolverConfig, ResolverOpts), NetError>;

/// The plan of a lookup.
enum Plan {
    Ask(Box<TokioResolver>, Name),
    Known(Vec<IpAddr>),
}

/// The addresses of a host in the hosts file. If it is there, no name server is asked for the other address
/// family, because that would only cost time. Search domains do not apply to the file.
fn in_hosts(hosts: &Hosts, host: &Name) -> Vec<IpAddr> {
    [RecordType::A, RecordType::AAAA]
        .into_iter()
        .filter_map(|family| hosts.lookup_static_host(&Query::query(host.clone(), family)))
        .flat_map(|lookup| {
            let records = lookup.answers().iter();
            records
                .filter_map(|record| record.data.ip_addr())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn explicit(servers: &[SocketAddr]) -> ResolverConfig {
    let server = |address: &SocketAddr| {
        let mut server = NameServerConfig::udp_and_tcp(address.ip());
        for connection in &mut server.connections {
            connection.port = address.port();
        }
        server
    };
    ResolverConfig::from_name_servers(servers.iter().map(server).collect())
}

async fn ask(resolver: &TokioResolver, host: Name) -> Result<Vec<IpAddr>, LookupError> {
    let answer = resolver.lookup_ip(host).await;
    let addresses: Vec<_> = match &answer {
        Ok(answer) => answer.iter().collect(),
        Err(error) => return Err(reason(error, resolver.options())),
    };
    if addresses.is_empty() {
        return Err(LookupError::NoAddresses);
    }
    Ok(addresses)
}

fn reason(error: &NetError, options: &ResolverOpts) -> LookupError {
    match error {
        error if error.is_nx_domain() => LookupError::NoSuchHost,
        error if error.is_no_records_found() => LookupError::NoAddresses,
        NetError::Dns(DnsError::ResponseCode(ResponseCode::ServFail)) => LookupError::ServerFailure,
        NetError::Timeout => {
            let attempts = u32::try_from(options.attempts).unwrap_or(u32::MAX);
            let waited = options.timeout.saturating_mul(attempts.saturating_add(1));
            LookupError::TimedOut(waited)
        }
        error => LookupError::Other(error.to_string()),
    }
}

fn other(what: &str, error: &NetError) -> LookupError {
    LookupError::Other(format!("{what}: {error}"))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use hickory_resolver::system_conf::parse_resolv_conf;

    use super::*;

    const HOSTS: &str = "192.0.2.1 One.test\n2001:db8::2 two.test\n192.0.2.2 two.test";

    fn plan(host: &str, resolv_conf: &str) -> Result<Plan, LookupError> {
        let host =
            Name::from_str_relaxed(host).map_err(|error| LookupError::Other(error.to_string()))?;
        let mut hosts = Hosts::default();
        hosts
            .read_hosts_conf(HOSTS.as_bytes())
            .map_err(|error| LookupError::Other(error.to_string()))?;
        SystemResolver::new().plan(host, &hosts, || parse_resolv_conf(resolv_conf))
    }

    #[test]
    fn a_host_in_the_hosts_file_has_the_addresses_that_it_has_there_only() {
        for (host, expected) in [
            ("one.test", vec!["192.0.2.1"]),
            ("Two.Test", vec!["192.0.2.2", "2001:db8::2"]),
        ] {
            let Ok(Plan::Known(addresses)) = plan(host, "") else {
                panic!("expected addresses without a query");
            };
            let addresses: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
            assert_eq!(addresses, expected);
        }
    }

    #[tokio::test]
    async fn the_systems_options_are_obeyed_and_nothing_is_cached() {
        let text = "nameserver 192.0.2.53\noptions timeout:3 attempts:4 ndots:5";
        let Ok(Plan::Ask(resolver, _)) = plan("backend.test", text) else {
            panic!("expected a configuration that works");
        };
        let options = resolver.options();
        assert_eq!(options.cache_size, 0);
        assert_eq!(options.ip_strategy, LookupIpStrategy::Ipv4AndIpv6);
        assert_eq!(options.ndots, 5);
        let timed_out = reason(&NetError::Timeout, options);
        assert_eq!(timed_out.to_string(), "timed out after 12s");
    }

    #[test]
    fn a_configuration_without_name_servers_is_an_error_of_the_lookup() {
        let Err(error) = plan("backend.test", "nonsense") else {
            panic!("expected a configuration that does not work");
        };
        let expected = "the system's DNS configuration: io error: no nameservers found in config";
        assert_eq!(error.to_string(), expected);
    }
}
