//! The router: it finds the route of a virtual host that a call takes.
//!
//! The channel and the tools all ask a [`RouteTable`], because two matchers could disagree about a call. The type
//! of destinations is open: a channel has clusters there, and a tool needs the position alone.

use std::collections::HashMap;
use std::{fmt, iter, sync::Arc};

use super::{PathMatcher, Route, VirtualHost};

/// The routes of a virtual host, compiled once and then asked for every call.
///
/// The first route that matches decides (gRFC A28). Routes for exactly one path are found by a
/// lookup, so that a thousand methods with a route each cost no more than one.
///
/// ```
/// # use std::sync::Arc;
/// # use crowfly_model::grpc::route::{PathMatcher, Route, RouteAction, RouteTable, VirtualHost};
/// let prefix = |text: &str, cluster: &str| Route {
///     name: String::new(),
///     path: PathMatcher::Prefix { text: text.to_owned(), case_sensitive: true },
///     action: RouteAction::to_cluster(cluster),
/// };
/// let host = VirtualHost {
///     name: "shop".to_owned(),
///     domains: vec!["*".parse().unwrap()],
///     routes: vec![prefix("/pay.Pay/", "pay"), prefix("/cart.", "cart")],
///     skipped: vec![],
/// };
/// let table = RouteTable::compile(&Arc::new(host), |route| route.action.clone());
///
/// assert_eq!(table.find("/cart.Cart/Add"), Ok(&RouteAction::to_cluster("cart")));
/// assert_eq!(
///     table.find("/other.Other/Call").unwrap_err().to_string(),
///     "virtual host shop: no route matches /other.Other/Call"
/// );
/// ```
#[derive(Clone, Debug)]
pub struct RouteTable<D> {
    host: Arc<VirtualHost>,
    /// One for each route of the virtual host.
    destinations: Box<[D]>,
    /// The routes for exactly one path, by that path: positions in the order of the routes.
    exact: HashMap<Box<str>, Vec<usize>>,
    /// The positions of all other routes, in their order. Each of them has to be tried.
    scanned: Box<[usize]>,
}

impl<D> RouteTable<D> {
    /// Compiles the routes of a virtual host, each with its destination.
    pub fn compile(host: &Arc<VirtualHost>, destination: impl FnMut(&Route) -> D) -> Self {
        let mut exact: HashMap<Box<str>, Vec<usize>> = HashMap::new();
        let mut scanned = Vec::new();
        for (position, route) in host.routes.iter().enumerate() {
            match &route.path {
                PathMatcher::Exact {
                    text,
                    case_sensitive: true,
                } => exact
                    .entry(text.as_str().into())
                    .or_default()
                    .push(position),
                PathMatcher::Exact { .. } | PathMatcher::Prefix { .. } => scanned.push(position),
            }
        }
        Self {
            host: Arc::clone(host),
            destinations: host.routes.iter().map(destination).collect(),
            exact,
            scanned: scanned.into(),
        }
    }

    /// The virtual host that the table was compiled from.
    pub fn host(&self) -> &Arc<VirtualHost> {
        &self.host
    }

    /// The destination of a call with this path, such as `/helloworld.Greeter/SayHello`.
    pub fn find<'a>(&'a self, path: &'a str) -> Result<&'a D, NoRoute<'a>> {
        let position = self.position(path);
        position
            .and_then(|position| self.destinations.get(position))
            .ok_or(NoRoute {
                host: &self.host,
                path,
            })
    }

    /// The position, in [`VirtualHost::routes`], of the route that a call with this path takes.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use crowfly_model::grpc::route::{RouteTable, VirtualHost};
    /// # let host = VirtualHost {
    /// #     name: "empty".to_owned(),
    /// #     domains: vec![],
    /// #     routes: vec![],
    /// #     skipped: vec![],
    /// # };
    /// let table = RouteTable::compile(&Arc::new(host), |_| ());
    /// assert_eq!(table.position("/a.A/M"), None);
    /// ```
    pub fn position(&self, path: &str) -> Option<usize> {
        let exact = self.exact.get(path).map_or(&[][..], Vec::as_slice);
        in_order(exact, &self.scanned)
            .find(|position| self.host.routes[*position].path.matches(path))
    }
}

/// Two ascending lists as one, so that the first match is the first of all routes.
fn in_order<'a>(mut a: &'a [usize], mut b: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
    iter::from_fn(move || {
        let next = match (a.first(), b.first()) {
            (Some(first), Some(second)) if second < first => &mut b,
            (Some(_), _) => &mut a,
            (None, _) => &mut b,
        };
        let (position, rest) = next.split_first()?;
        *next = rest;
        Some(*position)
    })
}

/// No route of a virtual host matches a call.
///
/// Its text names the routes that were left out, because the call may be meant for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoute<'a> {
    host: &'a VirtualHost,
    path: &'a str,
}

impl fmt::Display for NoRoute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, path) = (&self.host.name, self.path);
        write!(f, "virtual host {host}: no route matches {path}")?;
        let Some((first, others)) = self.host.skipped.split_first() else {
            return Ok(());
        };
        write!(f, " (skipped: {first}")?;
        for other in others {
            write!(f, "; {other}")?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for NoRoute<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::route::RouteAction;

    fn exact(text: &str, case_sensitive: bool) -> Route {
        Route {
            name: String::new(),
            path: PathMatcher::Exact {
                text: text.to_owned(),
                case_sensitive,
            },
            action: RouteAction::NonForwarding,
        }
    }

    /// A lookup finds an exact path, so no other route is tried.
    #[test]
    fn exact_paths_are_not_scanned() {
        let host = VirtualHost {
            name: "many".to_owned(),
            domains: Vec::new(),
            routes: (0..1000)
                .map(|i| exact(&format!("/a.A/M{i}"), true))
                .collect(),
            skipped: Vec::new(),
        };
        let table = RouteTable::compile(&Arc::new(host), |_| ());
        assert!(table.scanned.is_empty());
        assert_eq!(table.position("/a.A/M999"), Some(999));
        assert_eq!(table.position("/a.A/M1000"), None);
    }

    #[test]
    fn two_lists_are_one_in_order() {
        let merged = |a: &[usize], b: &[usize]| in_order(a, b).collect::<Vec<_>>();
        assert_eq!(merged(&[1, 4], &[0, 2, 3, 5]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(merged(&[], &[7]), [7]);
        assert_eq!(merged(&[7], &[]), [7]);
    }
}
