//! The construction of a channel from its settings.
//!
//! The construction is apart from the settings, because users read a line for each setting. Here the order of the steps
//! matters.

use super::*;

impl ChannelBuilder {
    /// Builds the channel. The error says which setting is wrong. The call never waits for the network.
    ///
    /// Must be called in a tokio runtime.
    pub fn build(self) -> Result<Channel, BuildError> {
        let target: Target = self.target.parse()?;
        self.start(&target)
    }

    /// Like [`build`](Self::build), but only a wrong target is an error here. Anything else that is wrong fails
    /// each call with the reason.
    pub(crate) fn connect(self) -> Result<Channel, TargetError> {
        let target: Target = self.target.parse()?;
        let written = self.target.clone();
        let given = self.bootstrap.as_ref().map(|given| given.node.id.clone());
        Ok(self.start(&target).unwrap_or_else(|error| {
            error!(target = target.name(), %error, "the channel cannot work");
            // The bootstrap may be good, and something else bad.
            let found = || {
                Bootstrap::from_env()
                    .ok()
                    .map(|found| found.node.id.clone())
            };
            let node = given.or_else(found).unwrap_or_default();
            broken(written, node.into(), &target, &error)
        }))
    }

    /// Follows the configurations that a channel with these settings would use, without a channel.
    ///
    /// Must be called in a tokio runtime.
    pub fn watch_config(mut self) -> Result<ConfigWatch, BuildError> {
        let target: Target = self.target.parse()?;
        let authority = self.authority_for(&target)?;
        match target {
            Target::Plain(_) => Err(BuildError::NoControlPlane),
            Target::Xds(target) => {
                let bootstrap = self.take_bootstrap()?;
                let source = self.xds_source(bootstrap, &target, &authority)?;
                Ok(source.watch())
            }
        }
    }

    fn start(mut self, target: &Target) -> Result<Channel, BuildError> {
        let authority = self.authority_for(target)?;
        let bootstrap = match target {
            Target::Plain(_) => None,
            Target::Xds(_) => Some(self.take_bootstrap()?),
        };
        let credentials = self.credentials(bootstrap.as_ref(), &authority);
        let profiles = Profiles::new(self.profile(target, &authority)?, credentials);
        let retries = self.retry_settings()?;
        let service = self.health_check.clone();
        let health_check = service.map(|service| HealthCheck {
            service,
            authority: authority.clone(),
        });
        let endpoints = Endpoints::new(profiles, self.connect_timeout, health_check);
        let counters = self.call_counters.clone();
        let counters = counters.unwrap_or_else(|| Arc::clone(&CALL_COUNTERS));
        let choice = self.endpoint_choice.clone();
        let activity = Arc::new(Activity::default());
        let now = time::Instant::now().into_std();
        let idle = IdleTimer::new(self.idle_timeout, Arc::clone(&activity), now);
        let written: Arc<str> = self.target.as_str().into();
        let outliers = Outliers::new(&written, self.balancing_recorder.clone());
        let call_recorder = self.call_recorder.clone();
        let source = self.source(bootstrap, target, &authority)?;
        let node = source.node().into();
        let routing = Arc::new(Published::new(Routing::nothing()));
        let states = StateTeller::new(ConnectivityState::Connecting);
        let state = states.watch();
        let (queries, asked) = mpsc::unbounded();
        let outlets = Outlets {
            routing: Arc::clone(&routing),
            states,
            outliers,
        };
        let driver = Driver::new(outlets, source, counters, choice, endpoints, idle, asked);
        driver.start();
        Ok(Channel::new(ChannelContext {
            target: written,
            id: fastrand::u64(..),
            node,
            authority,
            routing,
            states: state,
            activity,
            retries,
            call_recorder,
            queries,
        }))
    }

    fn take_bootstrap(&mut self) -> Result<Bootstrap, BuildError> {
        match self.bootstrap.take() {
            Some(bootstrap) => Ok(bootstrap),
            None => Ok(Bootstrap::from_env()?),
        }
    }

    /// The side that decides about TLS to backends. The program decides if it has set something or there is no control
    /// plane, or else each cluster.
    fn credentials(&self, bootstrap: Option<&Bootstrap>, authority: &CallAuthority) -> Credentials {
        if self.backend_tls.is_some() {
            return Credentials::Program("TLS");
        }
        match bootstrap {
            Some(bootstrap) if !self.plaintext => {
                let providers = bootstrap.certificate_providers.clone();
                Credentials::xds(providers, authority.as_str())
            }
            _ => Credentials::Program("plaintext"),
        }
    }

    /// The profile of connections to clusters that ask for no TLS, or to all if the program decides.
    fn profile(&self, target: &Target, authority: &CallAuthority) -> Result<Profile, BuildError> {
        let profile = match &self.backend_tls {
            Some(tls) => Profile::with_tls(tls, authority.as_str())?,
            None => Profile::plaintext(),
        };
        let profile = match self.connector_for(target) {
            Some(connector) => profile.with_connector(connector),
            None => profile,
        };
        let profile = match self.keepalive {
            Some((interval, timeout)) => profile.with_keepalive(Keepalive {
                interval,
                timeout,
                while_idle: self.keepalive_while_idle,
            }),
            None => profile,
        };
        let profile = match self.max_header_list_size {
            Some(bytes) => profile.with_max_header_list_size(bytes),
            None => profile,
        };
        Ok(profile.with_windows(self.windows))
    }

    fn authority_for(&self, target: &Target) -> Result<CallAuthority, BuildError> {
        match &self.authority {
            Some(text) => parse_authority(text).map_err(BuildError::Authority),
            None => Ok(target.authority().clone()),
        }
    }

    /// The sockets to backends, if they are not TCP.
    fn connector_for(&self, target: &Target) -> Option<Connector> {
        #[cfg(unix)]
        if let Target::Plain(plain) = target
            && let Place::Unix(path) = &plain.place
            && self.connector.is_none()
        {
            return Some(Connector::unix(path));
        }
        self.connector.clone()
    }

    /// The source of configurations.
    fn source(
        self,
        bootstrap: Option<Bootstrap>,
        target: &Target,
        authority: &CallAuthority,
    ) -> Result<ConfigSource, BuildError> {
        match (target, bootstrap) {
            (Target::Plain(target), _) => {
                let resolver = self.dns_resolver;
                let resolver = resolver.unwrap_or_else(|| Arc::new(SystemResolver::new()));
                let policy = self.plain_policy.unwrap_or_default();
                let source = PlainSource::new(target, policy, resolver, self.dns_refresh)?;
                Ok(ConfigSource::Plain(source))
            }
            (Target::Xds(target), Some(bootstrap)) => {
                if self.plain_policy.is_some() {
                    warn!(
                        target = self.target,
                        "round_robin is ignored: clusters decide"
                    );
                }
                let source = self.xds_source(bootstrap, target, authority)?;
                Ok(ConfigSource::Xds(Box::new(source)))
            }
            (Target::Xds(_), None) => Err(BuildError::NoControlPlane),
        }
    }

    /// The source of configurations of a control plane.
    fn xds_source(
        self,
        bootstrap: Bootstrap,
        target: &XdsTarget,
        authority: &CallAuthority,
    ) -> Result<config_watch::ConfigSource, BuildError> {
        let xds_authority = target.xds_authority.as_deref();
        let listener = bootstrap.listener_name(xds_authority, &target.service)?;
        let node = bootstrap.node.id.clone();
        let unsaid = bootstrap.leaves_credentials_unsaid();
        let backend_tls = self.backend_tls.as_ref().filter(|_| unsaid);
        let backend_tls = backend_tls.map(BackendTls::client_config).transpose()?;
        let mut client = XdsClient::builder(Arc::new(bootstrap))
            .target(&self.target)
            .custom_policies(self.policies.into())
            .custom_filters(self.filters.into());
        if let Some(on) = self.data_error_handling {
            client = client.data_error_handling(on);
        }
        if let Some(on) = self.aggregate_cluster_resources {
            client = client.aggregate_cluster_resources(on);
        }
        // Certificates would have to be checked for the authority of each call (gRFC A81).
        let rewriting = match self.backend_tls {
            Some(_) => Some(false),
            None => self.authority_rewriting,
        };
        if let Some(on) = rewriting {
            client = client.authority_rewriting(on);
        }
        if let Some(config) = backend_tls {
            client = client.backend_tls(config);
        }
        if let Some(recorder) = self.recorder {
            client = client.recorder(recorder);
        }
        let roots = ResolveRoots {
            listener: listener.into(),
            authority: authority.as_str().into(),
            held: BTreeSet::new(),
        };
        let resolver = self.dns_resolver;
        Ok(config_watch::ConfigSource {
            client: client.shared()?,
            roots,
            node,
            dns_resolver: resolver.unwrap_or_else(|| Arc::new(SystemResolver::new())),
            dns_refresh: self.dns_refresh,
        })
    }
}

/// A channel on which every call fails with `error`.
fn broken(written: String, node: Arc<str>, target: &Target, error: &BuildError) -> Channel {
    let routing = Routing::Broken(error.to_string().into());
    Channel::new(ChannelContext {
        target: written.into(),
        id: fastrand::u64(..),
        node,
        authority: target.authority().clone(),
        routing: Arc::new(Published::new(routing)),
        states: StateTeller::new(ConnectivityState::TransientFailure).watch(),
        activity: Arc::default(),
        retries: RetrySettings::default(),
        call_recorder: None,
        queries: mpsc::unbounded().0,
    })
}
