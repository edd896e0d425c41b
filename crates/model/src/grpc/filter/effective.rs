//! The filters that a call passes: a chain, and the overrides of the call's route.
//!
//! Chains and overrides are merged when a configuration is applied, not for each call (gRFC A39).

use std::{fmt, sync::Arc};

use super::{
    ChainedFilter, CustomFilterConfig, FaultConfig, FilterChain, FilterConfig, FilterOverride,
    FilterOverrides, SessionCookie, stateful_session,
};

/// The overrides that are in force for one cluster of one route.
#[derive(Clone, Copy, Debug)]
pub struct Overrides<'a> {
    /// The overrides of the virtual host.
    pub host: &'a FilterOverrides,
    /// The overrides of the route.
    pub route: &'a FilterOverrides,
    /// The overrides of the cluster's entry, if the route has weighted clusters.
    pub cluster: Option<&'a FilterOverrides>,
}

/// A filter that calls pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveFilter<'a> {
    /// The name of the filter in its chain.
    pub name: &'a str,
    /// The configuration that is in force.
    pub config: EffectiveConfig<'a>,
    /// The place of the configuration that is in force.
    pub set_by: SetBy,
    /// The most specific override, if it is not used, because it configures another kind of filter.
    pub unfit: Option<(SetBy, &'a FilterConfig)>,
}

/// The configuration of a filter that calls pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectiveConfig<'a> {
    /// A filter of the program's own.
    Custom {
        /// The configuration in the chain.
        base: &'a CustomFilterConfig,
        /// The override, if there is one. The program knows how to apply it.
        overriding: Option<&'a CustomFilterConfig>,
    },
    /// Fault injection. An override has replaced the configuration in the chain.
    Fault(&'a Arc<FaultConfig>),
    /// Sessions by this cookie, or none. An override has replaced the configuration in the chain.
    StatefulSession(Option<&'a Arc<SessionCookie>>),
}

/// The place of a filter's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBy {
    /// The chain of the listener.
    Listener,
    /// An override of the virtual host.
    VirtualHost,
    /// An override of the route.
    Route,
    /// An override of a weighted cluster.
    WeightedCluster,
}

impl FilterChain {
    /// The filters that calls pass, in order.
    ///
    /// The most specific override of a filter counts (gRFC A39). The weighted cluster comes first, then the route, then
    /// the virtual host. That override replaces all others. An override that configures another kind of filter than the
    /// one it names is passed over, as in gRPC C-core.
    ///
    /// ```
    /// # use crowfly_model::grpc::filter::{FilterChain, FilterOverrides, Overrides};
    /// # let (chain, none) = (FilterChain::default(), FilterOverrides::default());
    /// let overrides = Overrides { host: &none, route: &none, cluster: None };
    /// assert_eq!(chain.effective(overrides).count(), 0);
    /// ```
    pub fn effective<'a>(
        &'a self,
        overrides: Overrides<'a>,
    ) -> impl Iterator<Item = EffectiveFilter<'a>> {
        self.iter()
            .filter_map(move |filter| merge(filter, overrides))
    }
}

/// The filter under its overrides; `None` if it is disabled.
fn merge<'a>(filter: &'a ChainedFilter, overrides: Overrides<'a>) -> Option<EffectiveFilter<'a>> {
    let found = || overrides.of(&filter.name);
    // Any override enables a filter that the chain disables, as in gRPC C-core and Envoy.
    let disabled = found()
        .next()
        .map_or(filter.disabled, |(_, most_specific)| most_specific.disabled);
    if disabled {
        return None;
    }
    let configs = || found().filter_map(|(set_by, entry)| Some((set_by, entry.config.as_ref()?)));
    let fits = |config: &FilterConfig| config.is_of_kind(&filter.config);
    let fitting = configs().find(|(_, config)| fits(config));
    Some(EffectiveFilter {
        name: &filter.name,
        config: EffectiveConfig::new(&filter.config, fitting.map(|(_, config)| config)),
        set_by: fitting.map_or(SetBy::Listener, |(set_by, _)| set_by),
        unfit: configs().next().filter(|(_, config)| !fits(config)),
    })
}

impl<'a> EffectiveConfig<'a> {
    /// An override of another kind has no effect.
    fn new(base: &'a FilterConfig, overriding: Option<&'a FilterConfig>) -> Self {
        match (base, overriding) {
            (FilterConfig::Custom(base), Some(FilterConfig::Custom(overriding))) => Self::Custom {
                base,
                overriding: Some(overriding),
            },
            (FilterConfig::Custom(base), _) => Self::Custom {
                base,
                overriding: None,
            },
            (FilterConfig::Fault(_), Some(FilterConfig::Fault(config)))
            | (FilterConfig::Fault(config), _) => Self::Fault(config),
            (FilterConfig::StatefulSession(_), Some(FilterConfig::StatefulSession(cookie)))
            | (FilterConfig::StatefulSession(cookie), _) => Self::StatefulSession(cookie.as_ref()),
        }
    }
}

impl<'a> Overrides<'a> {
    /// The overrides of a filter, the most specific one first.
    fn of(self, filter: &'a str) -> impl Iterator<Item = (SetBy, &'a FilterOverride)> {
        let levels = [
            (SetBy::WeightedCluster, self.cluster),
            (SetBy::Route, Some(self.route)),
            (SetBy::VirtualHost, Some(self.host)),
        ];
        let levels = levels.into_iter();
        levels.filter_map(move |(set_by, overrides)| Some((set_by, overrides?.get(filter)?)))
    }
}

impl fmt::Display for EffectiveFilter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            config,
            set_by,
            ..
        } = self;
        write!(f, "{name}: {config} (set by the {set_by})")?;
        match self.unfit {
            Some((set_by, unfit)) => write!(
                f,
                "; the override of the {set_by} is ignored, because it is for another kind of filter: {unfit}"
            ),
            None => Ok(()),
        }
    }
}

impl fmt::Display for EffectiveConfig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Custom { base, overriding } => overriding.unwrap_or(base).fmt(f),
            Self::Fault(config) => config.fmt(f),
            Self::StatefulSession(cookie) => stateful_session::show(*cookie, f),
        }
    }
}

impl fmt::Display for SetBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listener => "listener",
            Self::VirtualHost => "virtual host",
            Self::Route => "route",
            Self::WeightedCluster => "weighted cluster",
        })
    }
}
