//! HTTP filters of your own, which the listeners and routes of a control plane may configure (gRFC A39).
//!
//! A filter sees each call once, after its route is known and before a backend is picked. The filter may change the
//! headers of the call, delay it, or end it with a status. Retries of the call do not pass it again.
//!
//! A filter is registered under the type of its configuration, with a function that reads the configuration. A listener
//! has the filter in `http_filters`. Virtual hosts, routes and weighted clusters may override its configuration in
//! `typed_per_filter_config`.
//!
//! ```
//! use crowfly::filter::{FilterFuture, FilterRegistry, FilterSettings, FilteredCall, HttpFilter};
//! use http::HeaderValue;
//!
//! /// Tells backends which team calls.
//! #[derive(Debug)]
//! struct Team(HeaderValue);
//!
//! impl HttpFilter for Team {
//!     fn on_call<'a>(&'a self, call: &'a mut FilteredCall<'_>) -> FilterFuture<'a> {
//!         Box::pin(async {
//!             call.headers_mut().insert("x-team", self.0.clone());
//!             Ok(())
//!         })
//!     }
//! }
//!
//! let filters = FilterRegistry::new().with("myorg.Team", |settings| match settings {
//!     FilterSettings::Json(config) => {
//!         let team = config["team"].as_str().ok_or("team: expected a string")?;
//!         let value = team.parse().map_err(|_| "team: expected a header value")?;
//!         Ok::<_, &str>(Team(value))
//!     }
//!     FilterSettings::Proto(_) => Err("expected a TypedStruct"),
//! });
//! let channel = crowfly::Channel::builder("xds:///payments").filters(&filters);
//! ```
//!
//! A listener with the filter. Clients that do not have it pass over it, because it is optional:
//!
//! ```yaml
//! http_filters:
//! - name: team
//!   is_optional: true
//!   typed_config:
//!     "@type": type.googleapis.com/xds.type.v3.TypedStruct
//!     type_url: type.googleapis.com/myorg.Team
//!     value: { team: payments }
//! - name: router
//!   typed_config:
//!     "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
//! ```

use std::any::Any;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

#[doc(inline)]
pub use crowfly_model::grpc::filter::FilterSettings;
use crowfly_model::grpc::filter::{CustomFilterConfig, CustomFilters, MadeFilter, ReadFilter};
use http::{HeaderMap, Request};
use tonic::Status;

/// A filter of a program, with its configuration.
///
/// One filter serves many calls at a time. The filter is made again when the resource that configures it changes. A
/// value that has to last longer, such as a token, belongs to the program and not to the filter.
pub trait HttpFilter: Any + Debug + Send + Sync {
    /// Sees a call. The call goes on when the future ends with `Ok`, and ends with the status if it is an error.
    ///
    /// The future is dropped when the caller gives up the call, or when the deadline of the call passes.
    fn on_call<'a>(&'a self, call: &'a mut FilteredCall<'_>) -> FilterFuture<'a>;
}

/// The future of [`HttpFilter::on_call`].
pub type FilterFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// A call, as a filter sees it.
#[derive(Debug)]
pub struct FilteredCall<'a> {
    head: &'a mut Request<()>,
    cluster: &'a str,
}

impl<'a> FilteredCall<'a> {
    pub(crate) fn new(head: &'a mut Request<()>, cluster: &'a str) -> Self {
        Self { head, cluster }
    }

    /// The path, such as `/helloworld.Greeter/SayHello`.
    pub fn path(&self) -> &str {
        self.head.uri().path()
    }

    /// The name of the cluster that the call goes to. A filter of yours cannot change it. The cookie of a session may
    /// have, if the filter for sessions comes first (gRFC A60).
    pub fn cluster(&self) -> &str {
        self.cluster
    }

    /// The headers, which tonic calls metadata.
    pub fn headers(&self) -> &HeaderMap {
        self.head.headers()
    }

    /// The headers. Changes reach the backend, and every attempt of the call has them.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        self.head.headers_mut()
    }
}

/// The filters of a program, by the types of their configurations.
///
/// Make one registry and give it to every channel. Channels to one target share an xDS client only if their
/// registries are clones of one. Filters of gRPC, such as fault injection, cannot be replaced.
#[derive(Clone, Debug, Default)]
pub struct FilterRegistry(CustomFilters);

impl FilterRegistry {
    /// No filter.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry that accepts every filter and every configuration, except the filters of Envoy. The registry is for
    /// tools that show configurations. On a channel, calls that would pass such a filter fail.
    pub fn of_all_types() -> Self {
        let nothing = |_: &FilterSettings| Ok(Arc::new(()) as MadeFilter);
        Self(CustomFilters::NONE.with_all_others(Arc::new(nothing)))
    }

    /// Adds a filter, in place of one of the same type. The type should be that of a protobuf message in a package of
    /// yours, such as `myorg.MyFilter`. The control plane sends such a message, or a `TypedStruct` with this type.
    ///
    /// `read` gets the configuration and must not panic. If it returns an error, the resource is refused. The NACK has
    /// the error with its path, and the last good version stays in use. An override has the same type, and replaces the
    /// whole filter.
    pub fn with<F, E>(
        self,
        type_name: &str,
        read: impl Fn(&FilterSettings) -> Result<F, E> + Send + Sync + 'static,
    ) -> Self
    where
        F: HttpFilter,
        E: Display + 'static,
    {
        let read = Arc::new(read);
        let replacement = {
            let read = Arc::clone(&read);
            move |settings: &FilterSettings| {
                let filter: Arc<dyn HttpFilter> = Arc::new(read(settings)?);
                Ok::<_, E>(MadeOverride(Box::new(move |_| Some(Arc::clone(&filter)))))
            }
        };
        let made = made_by(move |settings: &FilterSettings| read(settings));
        let filters = self.0.with(type_name, reader(made));
        Self(filters.with_override(type_name, type_name, reader(replacement)))
    }

    /// Adds a filter whose overrides are of another type than its configuration. `apply` makes the filter for a route
    /// from the filter of the listener and the override, and must not panic.
    ///
    /// ```
    /// # use crowfly::filter::{FilterFuture, FilterRegistry, FilterSettings, FilteredCall, HttpFilter};
    /// #[derive(Debug)]
    /// struct Limit { bytes: usize }
    /// # impl HttpFilter for Limit {
    /// #     fn on_call<'a>(&'a self, _: &'a mut FilteredCall<'_>) -> FilterFuture<'a> { unimplemented!() }
    /// # }
    ///
    /// let filters = FilterRegistry::new().with_overrides(
    ///     "myorg.Limit",
    ///     |settings| read_bytes(settings).map(|bytes| Limit { bytes }),
    ///     "myorg.LimitPerRoute",
    ///     read_bytes,
    ///     |limit, at_most| Limit { bytes: limit.bytes.min(*at_most) },
    /// );
    ///
    /// fn read_bytes(settings: &FilterSettings) -> Result<usize, String> {
    ///     match settings {
    ///         FilterSettings::Json(config) => {
    ///             let bytes = config["bytes"].as_u64().and_then(|bytes| bytes.try_into().ok());
    ///             bytes.ok_or_else(|| "bytes: expected a number".to_owned())
    ///         }
    ///         FilterSettings::Proto(_) => Err("expected a TypedStruct".to_owned()),
    ///     }
    /// }
    /// ```
    pub fn with_overrides<F, O, E>(
        self,
        type_name: &str,
        read: impl Fn(&FilterSettings) -> Result<F, E> + Send + Sync + 'static,
        override_type_name: &str,
        read_override: impl Fn(&FilterSettings) -> Result<O, E> + Send + Sync + 'static,
        apply: impl Fn(&F, &O) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: HttpFilter,
        O: Send + Sync + 'static,
        E: Display + 'static,
    {
        let apply = Arc::new(apply);
        let change = move |settings: &FilterSettings| {
            let (apply, change) = (Arc::clone(&apply), read_override(settings)?);
            Ok::<_, E>(MadeOverride(Box::new(move |filter| {
                let filter = (filter as &dyn Any).downcast_ref()?;
                Some(Arc::new(apply(filter, &change)) as Arc<dyn HttpFilter>)
            })))
        };
        let filters = self.0.with(type_name, reader(made_by(read)));
        Self(filters.with_override(type_name, override_type_name, reader(change)))
    }
}

impl From<FilterRegistry> for CustomFilters {
    fn from(registry: FilterRegistry) -> Self {
        registry.0
    }
}

/// A filter inside of a resource. The model keeps it as `Any`, because it does not know the type.
struct Made(Arc<dyn HttpFilter>);

/// An override inside of a resource: it makes the filter of a route from that of the listener.
struct MadeOverride(Box<ApplyOverride>);

type ApplyOverride = dyn Fn(&dyn HttpFilter) -> Option<Arc<dyn HttpFilter>> + Send + Sync;

/// The filter that a chain and an override configure; `None` if they were not read by a registry with such a filter.
pub(crate) fn made(
    base: &CustomFilterConfig,
    overriding: Option<&CustomFilterConfig>,
) -> Option<Arc<dyn HttpFilter>> {
    let Made(filter) = base.made.downcast_ref()?;
    let Some(overriding) = overriding else {
        return Some(Arc::clone(filter));
    };
    let MadeOverride(apply) = overriding.made.downcast_ref()?;
    apply(&**filter)
}

fn made_by<F: HttpFilter, E>(
    read: impl Fn(&FilterSettings) -> Result<F, E>,
) -> impl Fn(&FilterSettings) -> Result<Made, E> {
    move |settings| read(settings).map(|filter| Made(Arc::new(filter)))
}

/// A reader as the model takes it.
fn reader<T: Send + Sync + 'static, E: Display>(
    read: impl Fn(&FilterSettings) -> Result<T, E> + Send + Sync + 'static,
) -> Arc<ReadFilter> {
    Arc::new(move |settings| match read(settings) {
        Ok(made) => Ok(Arc::new(made) as MadeFilter),
        Err(error) => Err(error.to_string()),
    })
}
