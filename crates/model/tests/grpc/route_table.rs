//! The table of routes, against a scan that shares no code with it.

use std::sync::Arc;

use crowfly_model::grpc::route::{
    CallHead, Condition as RouteCondition, PathMatcher, Route, RouteAction, RouteTable,
    SkippedRoute, VirtualHost,
};
use proptest::{prelude::*, sample::select};

/// Paths and prefixes of few letters, so that many routes match one call.
const TEXTS: [&str; 9] = [
    "", "/", "/a.A", "/a.A/", "/A.a/", "/a.A/M", "/a.A/m", "/a.A/Mx", "/b.B/M",
];

#[derive(Clone, Copy, Debug)]
struct Condition {
    text: &'static str,
    is_prefix: bool,
    case_sensitive: bool,
}

impl Condition {
    /// gRFC A28, read a second time.
    fn holds_for(self, path: &str) -> bool {
        let fold = |text: &str| match self.case_sensitive {
            true => text.to_owned(),
            false => text.to_ascii_lowercase(),
        };
        let (path, text) = (fold(path), fold(self.text));
        match self.is_prefix {
            true => path.starts_with(&text),
            false => path == text,
        }
    }

    fn matcher(self) -> PathMatcher {
        let (text, case_sensitive) = (self.text.to_owned(), self.case_sensitive);
        match self.is_prefix {
            true => PathMatcher::Prefix {
                text,
                case_sensitive,
            },
            false => PathMatcher::Exact {
                text,
                case_sensitive,
            },
        }
    }
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    // Prefixes are rare, and exact paths common, as in real tables.
    let prefix = prop::bool::weighted(0.3);
    let case = prop::bool::weighted(0.7);
    let condition =
        (select(&TEXTS[..]), prefix, case).prop_map(|(text, is_prefix, case_sensitive)| {
            Condition {
                text,
                is_prefix,
                case_sensitive,
            }
        });
    prop::collection::vec(condition, 0..12)
}

fn host(routes: impl IntoIterator<Item = PathMatcher>) -> Arc<VirtualHost> {
    let routes = routes.into_iter().map(|path| Route {
        name: String::new(),
        condition: RouteCondition::of_path(path),
        action: RouteAction::NonForwarding,
    });
    Arc::new(VirtualHost {
        name: "host".to_owned(),
        domains: vec!["*".parse().unwrap()],
        routes: routes.collect(),
        skipped: Vec::new(),
    })
}

proptest! {
    /// gRFC A28: the first route that matches decides, wherever the table keeps it.
    #[test]
    fn the_first_match_decides(conditions in conditions(), path in select(&TEXTS[1..])) {
        let first = conditions.iter().position(|condition| condition.holds_for(path));
        let mut next = 0..;
        let host = host(conditions.iter().map(|condition| condition.matcher()));
        let table = RouteTable::compile(&host, |_| next.next());

        let call = CallHead::of_path(path);
        prop_assert_eq!(table.position(&call, || 0), first);
        prop_assert_eq!(table.find(&call, || 0).ok().copied().flatten(), first);
        for (condition, route) in conditions.iter().zip(&host.routes) {
            let is_mismatch = route.condition.path.mismatch(path).is_some();
            prop_assert_eq!(is_mismatch, !condition.holds_for(path), "{:?}", condition);
        }
    }
}

/// A call that no route matches is told which routes were left out: it may be meant for one.
#[test]
fn no_match_names_the_skipped_routes() {
    let skipped = |index, reason: &str| SkippedRoute {
        index,
        name: String::new(),
        reason: reason.to_owned(),
    };
    let mut host = VirtualHost::clone(&host([]));
    let text = |host: &VirtualHost| {
        let table = RouteTable::compile(&Arc::new(host.clone()), |_| ());
        table
            .find(&CallHead::of_path("/a.A/M"), || 0)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(text(&host), "virtual host host: no route matches /a.A/M");

    host.skipped = vec![skipped(0, "one"), skipped(3, "two")];
    assert_eq!(
        text(&host),
        "virtual host host: no route matches /a.A/M (skipped: routes[0]: one; routes[3]: two)"
    );
}
