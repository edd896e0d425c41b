//! An index of routes by their conditions on the path, so that a lookup does not compare each route.
//!
//! A table often has a route for each method or each service. A lookup finds those for a path, so that a thousand of
//! them cost no more than a few. Regular expressions and conditions in any case have to be tried.

use std::collections::{BTreeSet, HashMap};
use std::iter;

use smallvec::SmallVec;

use super::{PathMatcher, Route};

/// The number of prefixes of one length from which on a lookup by that length is cheaper than a comparison with each
/// prefix.
const WORTH_A_LOOKUP: usize = 8;

/// Positions of routes, by their conditions on the path. Each list is ascending.
#[derive(Clone, Debug)]
pub(super) struct PathIndex {
    /// Routes for exactly one path.
    exact: HashMap<Box<[u8]>, Vec<usize>>,
    /// Routes for a prefix, if lookups are worth it.
    prefixes: HashMap<Box<[u8]>, Vec<usize>>,
    /// The lengths of those prefixes, each once.
    lengths: Box<[usize]>,
    /// All other routes. Each of them has to be tried.
    scanned: Box<[usize]>,
}

impl PathIndex {
    pub(super) fn new(routes: &[Route]) -> Self {
        let prefixes = routes
            .iter()
            .filter_map(|route| prefix(&route.condition.path));
        let lengths: BTreeSet<usize> = prefixes.clone().map(<[u8]>::len).collect();
        let are_looked_up = prefixes.count() >= lengths.len() * WORTH_A_LOOKUP;
        let mut index = Self {
            exact: HashMap::new(),
            prefixes: HashMap::new(),
            lengths: lengths.into_iter().filter(|_| are_looked_up).collect(),
            scanned: Box::default(),
        };
        let mut scanned = Vec::new();
        for (position, route) in routes.iter().enumerate() {
            let path = &route.condition.path;
            let list = match (exact(path), prefix(path)) {
                (Some(text), _) => index.exact.entry(text.into()).or_default(),
                (_, Some(text)) if are_looked_up => index.prefixes.entry(text.into()).or_default(),
                _ => &mut scanned,
            };
            list.push(position);
        }
        index.scanned = scanned.into();
        index
    }

    /// The positions of the routes that may be for `path`, ascending. Every route that is for `path` is among them.
    pub(super) fn candidates(&self, path: &str) -> impl Iterator<Item = usize> {
        let path = path.as_bytes();
        let prefixes = self.lengths.iter().map_while(|length| path.get(..*length));
        let found = prefixes.filter_map(|text| self.prefixes.get(text));
        let found = found.chain(self.exact.get(path)).map(Vec::as_slice);
        let scanned = Some(&*self.scanned).filter(|list| !list.is_empty());
        in_order(found.chain(scanned).collect())
    }
}

fn exact(path: &PathMatcher) -> Option<&[u8]> {
    match path {
        PathMatcher::Exact {
            text,
            case_sensitive: true,
        } => Some(text.as_bytes()),
        _ => None,
    }
}

fn prefix(path: &PathMatcher) -> Option<&[u8]> {
    match path {
        PathMatcher::Prefix {
            text,
            case_sensitive: true,
        } => Some(text.as_bytes()),
        _ => None,
    }
}

/// Lists for one path. The lists are on the stack, unless prefixes of very many lengths match the path.
type Lists<'a> = SmallVec<[&'a [usize]; 16]>;

/// Ascending lists as one, so that the first match is the first of all routes.
fn in_order(mut lists: Lists<'_>) -> impl Iterator<Item = usize> {
    iter::from_fn(move || {
        let list = match &mut *lists {
            // The common case.
            [only] => only,
            lists => {
                let heads = lists.iter_mut().filter(|list| !list.is_empty());
                heads.min_by_key(|list| list[0])?
            }
        };
        let (position, rest) = list.split_first()?;
        *list = rest;
        Some(*position)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::{
        filter::FilterOverrides,
        route::{Condition, RouteAction},
    };

    fn index(paths: impl Iterator<Item = PathMatcher>) -> PathIndex {
        let routes: Vec<_> = paths
            .map(|path| Route {
                name: String::new(),
                condition: Condition::of_path(path),
                action: RouteAction::NonForwarding,
                filters: FilterOverrides::default(),
            })
            .collect();
        PathIndex::new(&routes)
    }

    fn found(index: &PathIndex, path: &str) -> Vec<usize> {
        index.candidates(path).collect()
    }

    /// A lookup finds an exact path, so no other route is tried.
    #[test]
    fn exact_paths_are_not_scanned() {
        let index = index((0..1000).map(|i| PathMatcher::Exact {
            text: format!("/a.A/M{i}"),
            case_sensitive: true,
        }));
        assert_eq!(found(&index, "/a.A/M999"), [999]);
        assert_eq!(found(&index, "/a.A/M1000"), [0; 0]);
    }

    /// Lookups find the prefixes of a path, if there are many prefixes of few lengths.
    #[test]
    fn many_prefixes_are_not_scanned() {
        let texts = (0..1000).map(|i| format!("/a{i}.")).chain([String::new()]);
        let index = index(texts.map(|text| PathMatcher::Prefix {
            text,
            case_sensitive: true,
        }));
        assert_eq!(index.lengths.len(), 4);
        assert_eq!(found(&index, "/a9.A/M"), [9, 1000]);
        assert_eq!(found(&index, "/a"), [1000]);
        assert_eq!(found(&index, "/b"), [1000]);
    }

    /// A comparison is cheaper than a lookup, if there are few prefixes of a length.
    #[test]
    fn few_prefixes_are_scanned() {
        let texts = ["/a.", "/long.", ""].map(str::to_owned);
        let index = index(texts.into_iter().map(|text| PathMatcher::Prefix {
            text,
            case_sensitive: true,
        }));
        assert!(index.lengths.is_empty());
        assert_eq!(found(&index, "/b.B/M"), [0, 1, 2]);
    }

    #[test]
    fn lists_are_one_in_order() {
        let merged = |lists: &[&[usize]]| {
            let lists = lists.iter().copied().collect();
            in_order(lists).collect::<Vec<_>>()
        };
        assert_eq!(merged(&[&[1, 4], &[0, 3, 5], &[2]]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(merged(&[&[], &[7]]), [7]);
        assert_eq!(merged(&[]), [0; 0]);
    }
}
