//! The router: it finds the route of a virtual host that a call takes.
//!
//! The channel and the tools all ask a [`RouteTable`], because two matchers could disagree about a call. The type of
//! destinations is open, because readers differ: a channel has the places of its clusters there, and a tool needs the
//! position alone.

use std::{fmt, sync::Arc};

use super::{
    CallHead, Condition, Headers, Mismatch, PathMismatch, Route, VirtualHost, index::PathIndex,
};

/// The routes of a virtual host, compiled once and then asked for every call.
///
/// The first route that matches decides (gRFC A28). Routes for one path, and many routes for prefixes, are found by
/// lookups. So a thousand methods or services with a route each cost little more than one.
///
/// The caller draws the random numbers for shares of calls, uniform over all of `u64`, because this crate has no
/// randomness. Each share takes a number of its own.
///
/// ```
/// # use std::sync::Arc;
/// # use crowfly_model::grpc::filter::FilterOverrides;
/// # use crowfly_model::grpc::route::{
/// #     CallHead, ClusterChoice, Condition, Forward, PathMatcher, Route, RouteAction, RouteTable,
/// #     VirtualHost,
/// # };
/// let to = |cluster: &str| {
///     let cluster = ClusterChoice::Cluster(cluster.to_owned());
///     RouteAction::Forward(Arc::new(Forward::to(cluster)))
/// };
/// let prefix = |text: &str, cluster: &str| Route {
///     name: String::new(),
///     condition: Condition::of_path(PathMatcher::Prefix {
///         text: text.to_owned(),
///         case_sensitive: true,
///     }),
///     action: to(cluster),
///     filters: FilterOverrides::default(),
/// };
/// let host = VirtualHost {
///     name: "shop".to_owned(),
///     domains: vec!["*".parse().unwrap()],
///     routes: vec![prefix("/pay.Pay/", "pay"), prefix("/cart.", "cart")],
///     skipped: vec![],
///     filters: FilterOverrides::default(),
/// };
/// let table = RouteTable::compile(&Arc::new(host), |route| route.action.clone());
/// let draw = || 0;
///
/// let call = CallHead::of_path("/cart.Cart/Add");
/// assert_eq!(table.find(&call, draw), Ok(&to("cart")));
/// let call = CallHead::of_path("/other.Other/Call");
/// assert_eq!(
///     table.find(&call, draw).unwrap_err().to_string(),
///     "virtual host shop: no route matches /other.Other/Call"
/// );
/// ```
#[derive(Clone, Debug)]
pub struct RouteTable<D> {
    host: Arc<VirtualHost>,
    /// One for each route of the virtual host.
    destinations: Box<[D]>,
    index: PathIndex,
}

impl<D> RouteTable<D> {
    /// Compiles the routes of a virtual host, each with its destination.
    pub fn compile(host: &Arc<VirtualHost>, destination: impl FnMut(&Route) -> D) -> Self {
        Self {
            host: Arc::clone(host),
            destinations: host.routes.iter().map(destination).collect(),
            index: PathIndex::new(&host.routes),
        }
    }

    /// The virtual host that the table was compiled from.
    pub fn host(&self) -> &Arc<VirtualHost> {
        &self.host
    }

    /// The destination of a call, and an error if it takes no route.
    pub fn find<'a, H: Headers + ?Sized>(
        &'a self,
        call: &CallHead<'a, H>,
        draw: impl FnMut() -> u64,
    ) -> Result<&'a D, NoRoute<'a>> {
        let position = self.position(call, draw);
        position
            .and_then(|position| self.destinations.get(position))
            .ok_or_else(|| NoRoute::of(&self.host, call))
    }

    /// The position, in [`VirtualHost::routes`], of the route that a call takes.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use crowfly_model::grpc::route::{CallHead, RouteTable, VirtualHost};
    /// # let host = VirtualHost {
    /// #     name: "empty".to_owned(),
    /// #     domains: vec![],
    /// #     routes: vec![],
    /// #     skipped: vec![],
    /// #     filters: Default::default(),
    /// # };
    /// let table = RouteTable::compile(&Arc::new(host), |_| ());
    /// assert_eq!(table.position(&CallHead::of_path("/a.A/M"), || 0), None);
    /// ```
    pub fn position<H: Headers + ?Sized>(
        &self,
        call: &CallHead<'_, H>,
        mut draw: impl FnMut() -> u64,
    ) -> Option<usize> {
        self.met(call)
            .find(|position| match self.condition(*position).fraction {
                Some(share) => share.takes(draw()),
                None => true,
            })
    }

    /// The positions of all routes that a call may take, by its draws: those with a share of the calls, and the
    /// first without one.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use crowfly_model::grpc::Fraction;
    /// # use crowfly_model::grpc::route::{
    /// #     CallHead, Condition, PathMatcher, Route, RouteAction, RouteTable, VirtualHost,
    /// # };
    /// # let any = || PathMatcher::Prefix { text: String::new(), case_sensitive: true };
    /// # let route = |fraction| Route {
    /// #     name: String::new(),
    /// #     condition: Condition { fraction, ..Condition::of_path(any()) },
    /// #     action: RouteAction::NonForwarding,
    /// #     filters: Default::default(),
    /// # };
    /// # let tenth = Some(Fraction::per_million(100_000));
    /// # let host = VirtualHost {
    /// #     name: "shop".to_owned(),
    /// #     domains: vec![],
    /// #     routes: vec![route(tenth), route(None), route(None)],
    /// #     skipped: vec![],
    /// #     filters: Default::default(),
    /// # };
    /// let table = RouteTable::compile(&Arc::new(host), |_| ());
    /// let call = CallHead::of_path("/a.A/M");
    /// assert_eq!(table.candidates(&call).collect::<Vec<_>>(), [0, 1]);
    /// ```
    pub fn candidates<'a, H: Headers + ?Sized>(
        &'a self,
        call: &'a CallHead<'a, H>,
    ) -> impl Iterator<Item = usize> + 'a {
        let mut is_decided = false;
        self.met(call).take_while(move |position| {
            let is_candidate = !is_decided;
            is_decided = self.condition(*position).fraction.is_none();
            is_candidate
        })
    }

    /// The positions of all routes whose conditions on path and headers the call meets, in order.
    fn met<'a, H: Headers + ?Sized>(
        &'a self,
        call: &'a CallHead<'_, H>,
    ) -> impl Iterator<Item = usize> + 'a {
        let candidates = self.index.candidates(call.path);
        candidates.filter(|position| self.condition(*position).is_met_by(call))
    }

    fn condition(&self, position: usize) -> &Condition {
        &self.host.routes[position].condition
    }
}

/// No route of a virtual host matches a call.
///
/// The text names the routes for the path whose other conditions the call did not meet. It also names the routes that
/// were left out, because the call may be meant for one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoute<'a> {
    host: &'a VirtualHost,
    path: &'a str,
    /// The routes for this path, by position.
    tried: Vec<(usize, Mismatch<'a>)>,
}

impl<'a> NoRoute<'a> {
    fn of<H: Headers + ?Sized>(host: &'a VirtualHost, call: &CallHead<'a, H>) -> Self {
        let routes = host.routes.iter().enumerate();
        let tried = routes.filter_map(|(position, route)| {
            let condition = &route.condition;
            match (condition.mismatch(call), condition.fraction) {
                (Some(Mismatch::Path(PathMismatch::Case)), _) => {
                    Some((position, Mismatch::Path(PathMismatch::Case)))
                }
                (Some(Mismatch::Path(_)), _) => None,
                (Some(mismatch), _) => Some((position, mismatch)),
                (None, share) => share.map(|share| (position, Mismatch::Fraction(share))),
            }
        });
        Self {
            host,
            path: call.path,
            tried: tried.take(MAX_TOLD).collect(),
        }
    }
}

/// The greatest number of routes that each list of an error names, because a table may have a thousand.
const MAX_TOLD: usize = 5;

impl fmt::Display for NoRoute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, path) = (self.host, self.path);
        write!(f, "virtual host {}: no route matches {path}", host.name)?;
        let tried = self.tried.iter();
        let tried = tried.map(|(at, why)| format!("routes[{}]: {why}", host.index_of(*at)));
        list(f, "tried", tried)?;
        let skipped = host.skipped.iter().take(MAX_TOLD);
        list(f, "skipped", skipped.map(ToString::to_string))
    }
}

/// Writes ` (title: item; item)`, and nothing if there is none.
fn list(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    items: impl Iterator<Item = String>,
) -> fmt::Result {
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        return Ok(());
    }
    write!(f, " ({title}: {})", items.join("; "))
}

impl std::error::Error for NoRoute<'_> {}
