//! The settings of a channel, and the construction of a channel from them.
//!
//! Settings are checked here, before any task runs, so that a wrong one is an error of the caller and not of a
//! call.

mod retries;
mod start;

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crowfly_client::{XdsClient, XdsClientError};
use crowfly_lb::CallCounters;
use crowfly_model::Errors;
use crowfly_model::bootstrap::{Bootstrap, BootstrapError, UnknownAuthority};
use crowfly_model::grpc::plain::PlainPolicy;
use crowfly_xds::ResolveRoots;
use futures_channel::mpsc;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time;
use tracing::{error, warn};

use crate::authority::{CallAuthority, parse_authority};
use crate::call::RetrySettings;
use crate::channel::{Channel, ChannelContext};
use crate::config_watch::{self, ConfigWatch};
use crate::configs::{ConfigSource, PlainSource};
use crate::dns::{Resolve, SystemResolver};
use crate::driver::{Driver, Outlets};
use crate::endpoints::Endpoints;
use crate::filter::FilterRegistry;
use crate::health::HealthCheck;
use crate::idle::{Activity, IdleTimer};
#[cfg(feature = "opentelemetry")]
use crate::metrics::OpenTelemetry;
use crate::metrics::{BalancingRecorder, CallRecorder, MetricsRecorder};
use crate::outliers::Outliers;
use crate::plan::EndpointChoice;
use crate::policy::PolicyRegistry;
use crate::published::Published;
use crate::routing::Routing;
use crate::security::{Credentials, Profiles};
use crate::state::{ConnectivityState, StateTeller};
use crate::target::{Place, Target, TargetError, XdsTarget};
use crate::transport::{BackendTls, Connector, Keepalive, Profile, TlsError, Windows};

/// gRPC's usual limit for TCP, TLS and SETTINGS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// gRPC's usual time without calls after which a channel closes its connections and watches.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The least idle timeout. A shorter timeout is raised to it, because it can only be a mistake.
const LEAST_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The open calls of every cluster, over all channels of the process (gRFC A32).
static CALL_COUNTERS: LazyLock<Arc<CallCounters>> = LazyLock::new(Arc::default);

/// The settings of a [`Channel`].
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use crowfly::Bootstrap;
///
/// let bootstrap = Bootstrap::builder("127.0.0.1:18000")?.node_id("web-1").build();
/// let channel = crowfly::Channel::builder("xds:///payments")
///     .bootstrap(bootstrap)
///     .authority("payments.example.com")
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ChannelBuilder {
    target: String,
    bootstrap: Option<Bootstrap>,
    authority: Option<String>,
    backend_tls: Option<BackendTls>,
    plaintext: bool,
    connect_timeout: Duration,
    connector: Option<Connector>,
    keepalive: Option<(Duration, Duration)>,
    keepalive_while_idle: bool,
    max_header_list_size: Option<u32>,
    windows: Windows,
    idle_timeout: Duration,
    data_error_handling: Option<bool>,
    aggregate_cluster_resources: Option<bool>,
    authority_rewriting: Option<bool>,
    recorder: Option<Arc<dyn MetricsRecorder>>,
    call_recorder: Option<Arc<dyn CallRecorder>>,
    balancing_recorder: Option<Arc<dyn BalancingRecorder>>,
    dns_resolver: Option<Arc<dyn Resolve>>,
    dns_refresh: Option<Duration>,
    plain_policy: Option<PlainPolicy>,
    call_counters: Option<Arc<CallCounters>>,
    policies: PolicyRegistry,
    filters: FilterRegistry,
    endpoint_choice: EndpointChoice,
    retries: RetrySettings,
    retry_throttling: Option<(u32, f64)>,
    health_check: Option<Arc<str>>,
}

impl ChannelBuilder {
    pub(crate) fn new(target: &str) -> Self {
        Self {
            target: target.to_owned(),
            bootstrap: None,
            authority: None,
            backend_tls: None,
            plaintext: false,
            connect_timeout: CONNECT_TIMEOUT,
            connector: None,
            keepalive: None,
            keepalive_while_idle: false,
            max_header_list_size: None,
            windows: Windows::default(),
            idle_timeout: IDLE_TIMEOUT,
            data_error_handling: None,
            aggregate_cluster_resources: None,
            authority_rewriting: None,
            recorder: None,
            call_recorder: None,
            balancing_recorder: None,
            dns_resolver: None,
            dns_refresh: None,
            plain_policy: None,
            call_counters: None,
            policies: PolicyRegistry::new(),
            filters: FilterRegistry::new(),
            endpoint_choice: EndpointChoice::default(),
            retries: RetrySettings::default(),
            retry_throttling: None,
            health_check: None,
        }
    }

    /// Uses this bootstrap instead of the one in the environment.
    pub fn bootstrap(mut self, bootstrap: Bootstrap) -> Self {
        self.bootstrap = Some(bootstrap);
        self
    }

    /// Sends this `:authority`, and chooses the virtual host by it, instead of the target's name.
    pub fn authority(mut self, authority: impl Into<String>) -> Self {
        self.authority = Some(authority.into());
        self
    }

    /// Speaks TLS to every backend, with these settings. Clusters are not asked. If a cluster asks for TLS of its own
    /// (gRFC A29), it is validated, logged as a WARN, and these settings are used.
    ///
    /// Each cluster decides if neither this nor [`plaintext`](Self::plaintext) is set. Backends of
    /// a cluster that asks for no TLS are spoken to in plaintext.
    pub fn backend_tls(mut self, tls: BackendTls) -> Self {
        self.backend_tls = Some(tls);
        self.plaintext = false;
        self
    }

    /// Speaks plaintext to every backend, even if its cluster asks for TLS (gRFC A29). A cluster that asks for TLS is
    /// validated and logged as a WARN. The setting is for tests, and for networks that encrypt by themselves.
    ///
    /// ```
    /// let builder = crowfly::Channel::builder("xds:///payments").plaintext();
    /// ```
    pub fn plaintext(mut self) -> Self {
        self.backend_tls = None;
        self.plaintext = true;
        self
    }

    /// Limits an attempt to connect to a backend, from TCP to the server's SETTINGS.
    /// The default is 20 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Detects backends that vanished without closing their connections (gRFC A8). A backend that was silent
    /// for `interval` while calls are open is sent a PING. If nothing comes back within `timeout`, its
    /// connection is closed. Open calls then fail UNAVAILABLE, with a
    /// [`ConnectionLost`](crate::ConnectionLost).
    ///
    /// A call that begins after such a silence comes with a PING. `timeout` is TCP's too, on systems
    /// that know TCP_USER_TIMEOUT (gRFC A18): bytes that are not acknowledged for so long end the
    /// connection.
    ///
    /// By default there are no PINGs. The least interval is 10 seconds. Most gRPC servers refuse PINGs more often than
    /// every 5 minutes with GOAWAY. Connections that the channel makes after that wait twice as long.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let minute = Duration::from_secs(60);
    /// let builder = crowfly::Channel::builder("xds:///payments").keepalive(minute, minute / 3);
    /// ```
    pub fn keepalive(mut self, interval: Duration, timeout: Duration) -> Self {
        let least = Keepalive::LEAST_INTERVAL;
        if interval < least {
            warn!(
                ?interval,
                ?least,
                "keepalive: the interval is too short, the least one is used"
            );
        }
        self.keepalive = Some((interval.max(least), timeout));
        self
    }

    /// Makes the sockets to backends with `connect` in place of TCP, for example by a Unix socket or
    /// through a proxy. `connect` is called with an endpoint's address. TLS, if it is set, runs over the
    /// stream that it returns. [`connect_timeout`](Self::connect_timeout) covers it too.
    ///
    /// ```
    /// use tokio::net::UnixStream;
    ///
    /// // All endpoints are behind one proxy on this machine.
    /// let builder = crowfly::Channel::builder("xds:///payments")
    ///     .connector(|_address| UnixStream::connect("/run/mesh.sock"));
    /// ```
    pub fn connector<C, F, S>(mut self, connect: C) -> Self
    where
        C: Fn(SocketAddr) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.connector = Some(Connector::new(connect));
        self
    }

    /// Sends PINGs on connections without open calls too if `on`; the default is no. The setting has no effect without
    /// [`keepalive`](Self::keepalive).
    pub fn keepalive_while_idle(mut self, on: bool) -> Self {
        self.keepalive_while_idle = on;
        self
    }

    /// Takes response headers and trailers of at most this size. The size is counted as in HTTP/2: names and values,
    /// and 32 bytes for each field (RFC 9113, section 6.5.2). The default is 64 KiB.
    ///
    /// If the trailers of a failed call are larger, its status is kept, and its message names the limit.
    /// Anything else that is larger fails the call with RESOURCE_EXHAUSTED.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = crowfly::Channel::builder("xds:///payments")
    ///     .max_header_list_size(1024 * 1024)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_header_list_size(mut self, bytes: u32) -> Self {
        self.max_header_list_size = Some(bytes);
        self
    }

    /// Sets the number of bytes that a backend may send on a stream before the call reads them.
    ///
    /// By default a stream begins with 1 MiB. While it is read, its window follows the bandwidth and the
    /// delay of the path, up to 16 MiB, as in gRPC. A size that is set here does not change.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = crowfly::Channel::builder("xds:///payments")
    ///     .initial_stream_window_size(65_535)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn initial_stream_window_size(mut self, bytes: u32) -> Self {
        self.windows.stream = Some(bytes);
        self
    }

    /// Sets the number of bytes that a backend may have under way on all streams of a connection
    /// together. The default is 16 MiB, the least 65,535 bytes.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = crowfly::Channel::builder("xds:///payments")
    ///     .initial_connection_window_size(1024 * 1024)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn initial_connection_window_size(mut self, bytes: u32) -> Self {
        self.windows.connection = Some(bytes);
        self
    }

    /// Bounds the bytes that calls have not read yet, for all streams of a connection together. The
    /// default is 16 MiB.
    ///
    /// Below that limit a stream that is not read does not block the others. At the limit all of them wait until a call
    /// reads.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = crowfly::Channel::builder("xds:///payments")
    ///     .max_unread_bytes(64 * 1024 * 1024)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_unread_bytes(mut self, bytes: u32) -> Self {
        self.windows.max_unread = Some(bytes);
        self
    }

    /// Sets the time without open calls after which the channel closes its connections, and stops
    /// watching the control plane and DNS. The next call connects again, and waits as the first one does.
    /// The default is 30 minutes, the least is a second, and [`Duration::MAX`] means never.
    ///
    /// Calls do not pay for this, because the channel checks once in each interval. So the channel becomes IDLE between
    /// one and two intervals after its last call has ended.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout.max(LEAST_IDLE_TIMEOUT);
        self
    }

    /// Handles errors in xDS data as gRFC A88 says if `on`, and as A53 and A57 say if not. The default is the
    /// value of `GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING`.
    pub fn data_error_handling(mut self, on: bool) -> Self {
        self.data_error_handling = Some(on);
        self
    }

    /// Allows an aggregate cluster to have its list of clusters in a resource of its own (gRFC A99). The
    /// default is the value of `GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE`.
    pub fn aggregate_cluster_resources(mut self, on: bool) -> Self {
        self.aggregate_cluster_resources = Some(on);
        self
    }

    /// Allows control planes that the bootstrap calls `trusted_xds_server` to rewrite the `:authority` of
    /// calls (gRFC A81). The default is the value of `GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE`.
    ///
    /// A route that asks for it (`auto_host_rewrite`) has the host name of each call's endpoint as authority. That name
    /// comes before the one that [`authority`](Self::authority) sets. With [`backend_tls`](Self::backend_tls) no
    /// authority is rewritten, because certificates are not checked for each call.
    ///
    /// ```
    /// let builder = crowfly::Channel::builder("xds:///payments").authority_rewriting(true);
    /// ```
    pub fn authority_rewriting(mut self, on: bool) -> Self {
        self.authority_rewriting = Some(on);
        self
    }

    /// Reports the metrics of the xDS client to `recorder`.
    pub fn recorder(mut self, recorder: Arc<dyn MetricsRecorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Reports every call and attempt of the channel to `recorder`. By default nothing is measured, and
    /// calls pay nothing for it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use crowfly::metrics::{CallEnd, CallLabels, CallRecorder};
    ///
    /// #[derive(Debug, Default)]
    /// struct Failures(AtomicU64);
    ///
    /// impl CallRecorder for Failures {
    ///     fn call_ended(&self, _: &CallLabels, call: &CallEnd) {
    ///         if call.status != tonic::Code::Ok {
    ///             self.0.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     }
    /// }
    ///
    /// let failures = Arc::new(Failures::default());
    /// let builder = crowfly::Channel::builder("xds:///payments").call_recorder(failures);
    /// ```
    pub fn call_recorder(mut self, recorder: Arc<dyn CallRecorder>) -> Self {
        self.call_recorder = Some(recorder);
        self
    }

    /// Reports to `recorder` the changes that balancing makes to endpoints, such as ejections by outlier detection.
    pub fn balancing_recorder(mut self, recorder: Arc<dyn BalancingRecorder>) -> Self {
        self.balancing_recorder = Some(recorder);
        self
    }

    /// Reports the metrics of calls, of balancing and of the xDS client to OpenTelemetry.
    ///
    /// ```no_run
    /// # fn example(provider: &dyn opentelemetry::metrics::MeterProvider) {
    /// use std::sync::Arc;
    /// use crowfly::metrics::OpenTelemetry;
    ///
    /// let metrics = OpenTelemetry::new(&provider.meter("crowfly")).with_locality();
    /// let builder = crowfly::Channel::builder("xds:///payments").opentelemetry(&Arc::new(metrics));
    /// # }
    /// ```
    #[cfg(feature = "opentelemetry")]
    pub fn opentelemetry(self, metrics: &Arc<OpenTelemetry>) -> Self {
        let metrics = Arc::clone(metrics);
        self.recorder(metrics.clone())
            .balancing_recorder(metrics.clone())
            .call_recorder(metrics)
    }

    /// Looks up the host names of clusters whose endpoints come from DNS with this resolver. The default is a
    /// [`SystemResolver`].
    pub fn dns_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.dns_resolver = Some(resolver);
        self
    }

    /// Also looks host names up at this interval. By default they are looked up once, and again when connections to
    /// their addresses are lost or fail. These lookups are at least 30 seconds apart.
    pub fn dns_refresh(mut self, interval: Duration) -> Self {
        self.dns_refresh = Some(interval);
        self
    }

    /// Spreads calls over all addresses of a target without a control plane (`dns:`, `ipv4:`, `ipv6:`). By
    /// default the first address that can be reached gets all calls, as in gRPC. For a target of the scheme
    /// `xds` it has no effect, because each cluster has its own policy.
    ///
    /// ```
    /// let builder = crowfly::Channel::builder("dns:///payments:50051").round_robin();
    /// ```
    pub fn round_robin(mut self) -> Self {
        self.plain_policy = Some(PlainPolicy::RoundRobin);
        self
    }

    /// Adds balancing policies of your own, which clusters may name (gRFC A52): see
    /// [`policy`](crate::policy). A cluster is refused if it names no policy that the channel has.
    pub fn policies(mut self, policies: &PolicyRegistry) -> Self {
        self.policies = policies.clone();
        self
    }

    /// Adds HTTP filters of your own, which listeners and routes may configure (gRFC A39): see
    /// [`filter`](crate::filter). A listener is refused if it has a filter that the channel does not know, unless
    /// the filter is optional.
    pub fn filters(mut self, filters: &FilterRegistry) -> Self {
        self.filters = filters.clone();
        self
    }

    /// Calls with the same value of this request header go to the same backend, where clusters balance by `ring_hash`
    /// (gRFC A76). The header decides before a [`RequestHash`](crate::RequestHash), and a
    /// [`RequestHash`](crate::RequestHash) before the hash policies of a route. A call without any of them may go to
    /// any backend.
    pub fn request_hash_header(mut self, name: &str) -> Self {
        self.endpoint_choice.hash_header = Some(name.into());
        self
    }

    /// Asks each backend for the health of `service` (gRFC A17), and sends it no calls unless it answers SERVING. The
    /// empty name means the server as a whole. By default nothing is asked.
    ///
    /// A backend that does not implement `grpc.health.v1.Health/Watch` counts as healthy, and the log says
    /// so at ERROR. Clusters that balance by `pick_first` are not checked, because an unhealthy backend
    /// gives them no reason to connect to another (gRFC A61). Each connection has one more stream open,
    /// which the server counts too.
    ///
    /// ```
    /// let builder = crowfly::Channel::builder("xds:///payments").health_check("shop.Payments");
    /// ```
    pub fn health_check(mut self, service: &str) -> Self {
        self.health_check = Some(service.into());
        self
    }

    /// Counts open calls apart from the other channels of this process. By default they are counted
    /// together, because the limit of a cluster (its circuit breaker) is one limit for the whole process.
    pub fn call_counters(mut self, counters: Arc<CallCounters>) -> Self {
        self.call_counters = Some(counters);
        self
    }
}

/// The reason why a channel cannot be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The authority override is malformed.
    #[error("authority: {0}")]
    Authority(String),
    /// No bootstrap can be used.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The bootstrap cannot be used by this client.
    #[error("xDS bootstrap: {0}")]
    Config(#[from] XdsClientError),
    /// The settings of the retry throttle are out of range.
    #[error("retry throttling: {0}")]
    RetryThrottling(String),
    /// The target has no control plane, so there are no configurations to follow.
    #[error("target: expected the scheme xds, because only a control plane has configurations")]
    NoControlPlane,
    /// The target cannot be used.
    #[error("target: {0}")]
    Plain(#[from] Errors),
    /// The target is malformed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The target's authority is not in the bootstrap.
    #[error("xDS bootstrap: {0}")]
    UnknownAuthority(#[from] UnknownAuthority),
    /// The TLS settings do not work.
    #[error("backend TLS: {0}")]
    Tls(#[from] TlsError),
}
