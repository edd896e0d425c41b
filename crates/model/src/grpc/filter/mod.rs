//! HTTP filters: the steps that a call takes between its route and its cluster (gRFC A39).
//!
//! A listener has the chain of filters, and virtual hosts, routes and weighted clusters override single ones
//! for their calls. All of these are values here. [`FilterChain::effective`] merges them, because the channel and
//! the tools must agree about the filters of a call.
//!
//! The router ends every chain. The router is not part of a [`FilterChain`], because the channel itself is the router.

mod chain;
mod custom;
mod effective;
mod fault;
mod kind;
mod overrides;
mod stateful_session;

use std::{fmt, mem::discriminant, sync::Arc};

pub(super) use self::{chain::parse as parse_chain, overrides::parse as parse_overrides};
pub use self::{
    chain::{ChainedFilter, FilterChain},
    custom::{CustomFilterConfig, CustomFilters, FilterSettings, MadeFilter, ReadFilter},
    effective::{EffectiveConfig, EffectiveFilter, Overrides, SetBy},
    fault::{AbortWith, DelayBy, FaultAbort, FaultConfig, FaultDelay, FaultShare},
    overrides::{FilterOverride, FilterOverrides},
    stateful_session::{SessionCookie, SessionHost},
};

/// The configuration of a filter, in a chain or in an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterConfig {
    /// A filter of the program's own.
    Custom(CustomFilterConfig),
    /// The filter that delays and aborts calls on purpose (gRFC A33).
    Fault(Arc<FaultConfig>),
    /// The filter that keeps sessions on their hosts (gRFC A55); `None` if it does nothing.
    StatefulSession(Option<Arc<SessionCookie>>),
}

impl FilterConfig {
    /// True if both configure the same kind of filter, so that one can override the other.
    pub fn is_of_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Custom(one), Self::Custom(other)) => one.filter == other.filter,
            (one, other) => discriminant(one) == discriminant(other),
        }
    }
}

impl fmt::Display for FilterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Custom(config) => config.fmt(f),
            Self::Fault(config) => config.fmt(f),
            Self::StatefulSession(cookie) => stateful_session::show(cookie.as_ref(), f),
        }
    }
}
