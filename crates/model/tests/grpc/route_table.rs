//! Compares the table of routes with a scan that shares no code with it, because the table is fast
//! code with many special cases.

use std::sync::Arc;

use crowfly_model::grpc::{
    Fraction, StringMatcher, StringPattern,
    filter::FilterOverrides,
    route::{
        CallHead, Condition, HeaderCondition, HeaderMatcher, PathMatcher, Route, RouteAction,
        RouteTable, SkippedRoute, VirtualHost,
    },
};
use proptest::{prelude::*, sample::select};

/// Paths and prefixes of few letters, so that many routes match one call.
const TEXTS: [&str; 9] = [
    "", "/", "/a.A", "/a.A/", "/A.a/", "/a.A/M", "/a.A/m", "/a.A/Mx", "/b.B/M",
];

type Predicate = fn(&str) -> bool;

/// Regular expressions, each with a condition that says the same.
const REGEXES: [(&str, Predicate); 4] = [
    (".*", |_| true),
    ("/a\\.A/.+", |path| path.len() > 5 && &path[..5] == "/a.A/"),
    (".*/[Mm]", |path| {
        path.ends_with("/M") || path.ends_with("/m")
    }),
    ("(?i)/b\\.b/m|/A", |path| {
        ["/b.b/m", "/a"].contains(&&*path.to_lowercase())
    }),
];

const NAMES: [&str; 4] = ["x-a", "x-b", "x-bin", "content-type"];

const VALUES: [&str; 7] = ["", "1", "-7", "a", "aB", "a,1", "application/grpc"];

/// A route, in the words of the resource.
#[derive(Clone, Debug)]
struct Spec {
    path: PathSpec,
    case_sensitive: bool,
    headers: Vec<HeaderSpec>,
    percent: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum PathSpec {
    Exact(&'static str),
    Prefix(&'static str),
    Regex(usize),
}

#[derive(Clone, Debug)]
struct HeaderSpec {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
    flag: bool,
    invert: bool,
}

type Call = (&'static str, Vec<(&'static str, &'static str)>);

/// gRFC A28, read a second time: the first route whose path, headers and share take the call.
fn first_match(specs: &[Spec], call: &Call, draws: &[u64]) -> Option<usize> {
    let mut draws = draws.iter();
    for (position, spec) in specs.iter().enumerate() {
        if !spec.takes_path(call.0) || !spec.headers.iter().all(|h| h.takes(&call.1)) {
            continue;
        }
        let Some(percent) = spec.percent else {
            return Some(position);
        };
        let draw = *draws.next().expect("a draw for each share") as f64 / 2_f64.powi(64);
        if draw < f64::from(percent) / 100.0 {
            return Some(position);
        }
    }
    None
}

impl Spec {
    fn takes_path(&self, path: &str) -> bool {
        let fold = |text: &str| match self.case_sensitive {
            true => text.to_owned(),
            false => text.to_ascii_lowercase(),
        };
        match self.path {
            PathSpec::Exact(text) => fold(path) == fold(text),
            PathSpec::Prefix(text) => fold(path).starts_with(&fold(text)),
            PathSpec::Regex(which) => REGEXES[which].1(path),
        }
    }

    fn route(&self) -> Route {
        let case_sensitive = self.case_sensitive;
        let path = match self.path {
            PathSpec::Exact(text) => PathMatcher::Exact {
                text: text.to_owned(),
                case_sensitive,
            },
            PathSpec::Prefix(text) => PathMatcher::Prefix {
                text: text.to_owned(),
                case_sensitive,
            },
            PathSpec::Regex(which) => PathMatcher::Regex(REGEXES[which].0.parse().unwrap()),
        };
        Route {
            name: String::new(),
            condition: Condition {
                path,
                headers: self.headers.iter().map(HeaderSpec::matcher).collect(),
                fraction: self.percent.map(|n| Fraction::per_million(n * 10_000)),
            },
            action: RouteAction::NonForwarding,
            filters: FilterOverrides::default(),
        }
    }
}

impl HeaderSpec {
    fn takes(&self, headers: &[(&str, &str)]) -> bool {
        let values: Vec<_> = headers
            .iter()
            .filter(|(name, _)| *name == self.name)
            .map(|(_, value)| *value)
            .collect();
        let value = match self.name {
            "x-bin" => None,
            "content-type" => Some("application/grpc".to_owned()),
            _ if values.is_empty() => None,
            _ => Some(values.join(",")),
        };
        if self.kind == "present" {
            return (value.is_some() == self.flag) ^ self.invert;
        }
        let Some(value) = value else { return false };
        let (value, text) = match self.flag {
            true => (value.to_lowercase(), self.text.to_lowercase()),
            false => (value, self.text.to_owned()),
        };
        let is_met = match self.kind {
            "exact" => value == text,
            "prefix" => value.starts_with(&text),
            "suffix" => value.ends_with(&text),
            "contains" => value.contains(&text),
            "range" => value.parse::<i64>().is_ok_and(|n| (-7..=0).contains(&n)),
            other => panic!("unknown kind {other}"),
        };
        is_met ^ self.invert
    }

    fn matcher(&self) -> HeaderMatcher {
        let text = self.text.to_owned();
        let string = |pattern| HeaderCondition::Text(StringMatcher::new(pattern, self.flag));
        let condition = match self.kind {
            "present" => HeaderCondition::Present(self.flag),
            "exact" => string(StringPattern::Exact(text)),
            "prefix" => string(StringPattern::Prefix(text)),
            "suffix" => string(StringPattern::Suffix(text)),
            "contains" => string(StringPattern::Contains(text)),
            "range" => HeaderCondition::Range { start: -7, end: 1 },
            other => panic!("unknown kind {other}"),
        };
        HeaderMatcher::new(self.name, condition, self.invert)
    }
}

/// The largest table of [`prefixes`]: with most of its routes case-sensitive, the table looks their prefixes up.
const MOST_ROUTES: usize = 40;

/// Few routes with all conditions on the path. Exact paths are common, as in real tables.
fn mixture() -> impl Strategy<Value = Vec<Spec>> {
    let path = prop_oneof![
        4 => select(&TEXTS[..]).prop_map(PathSpec::Exact),
        2 => select(&TEXTS[..]).prop_map(PathSpec::Prefix),
        1 => (0..REGEXES.len()).prop_map(PathSpec::Regex),
    ];
    prop::collection::vec(spec(path), 0..12)
}

/// Many routes with prefixes of one length, because the table looks up only such prefixes.
fn prefixes() -> impl Strategy<Value = Vec<Spec>> {
    let path = select(&["/a.A/", "/A.a/", "/b.B/"][..]).prop_map(PathSpec::Prefix);
    prop::collection::vec(spec(path), 0..MOST_ROUTES)
}

fn spec(path: impl Strategy<Value = PathSpec>) -> impl Strategy<Value = Spec> {
    let kinds = ["present", "exact", "prefix", "suffix", "contains", "range"];
    let header = (
        select(&NAMES[..]),
        select(kinds.to_vec()),
        select(&VALUES[..]),
        any::<bool>(),
        any::<bool>(),
    );
    let header = header.prop_map(|(name, kind, text, flag, invert)| HeaderSpec {
        name,
        kind,
        text,
        flag,
        invert,
    });
    let spec = (
        path,
        prop::bool::weighted(0.7),
        prop::collection::vec(header, 0..3),
        prop::option::weighted(0.3, 0..=100_u32),
    );
    spec.prop_map(|(path, case_sensitive, headers, percent)| Spec {
        path,
        case_sensitive,
        headers,
        percent,
    })
}

fn calls() -> impl Strategy<Value = Call> {
    let header = (select(&NAMES[..]), select(&VALUES[..]));
    (select(&TEXTS[1..]), prop::collection::vec(header, 0..4))
}

fn host(routes: Vec<Route>) -> Arc<VirtualHost> {
    Arc::new(VirtualHost {
        name: "host".to_owned(),
        domains: vec!["*".parse().unwrap()],
        routes,
        skipped: Vec::new(),
        filters: FilterOverrides::default(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// gRFC A28: the first route that matches decides, wherever the table keeps it. The explanations agree: every
    /// route before it has a reason, or was not drawn.
    #[test]
    fn the_first_match_decides(
        specs in prop_oneof![mixture(), prefixes()],
        call in calls(),
        draws in prop::collection::vec(any::<u64>(), MOST_ROUTES),
    ) {
        let expected = first_match(&specs, &call, &draws);
        let host = host(specs.iter().map(Spec::route).collect());
        let mut next = 0..;
        let table = RouteTable::compile(&host, |_| next.next().unwrap());
        let head = CallHead { path: call.0, headers: &call.1[..] };
        let draw = || {
            let mut draws = draws.iter().copied();
            move || draws.next().unwrap()
        };

        prop_assert_eq!(table.position(&head, draw()), expected);
        prop_assert_eq!(table.find(&head, draw()).ok().copied(), expected);
        let candidates: Vec<_> = table.candidates(&head).collect();
        prop_assert!(expected.is_none_or(|position| candidates.contains(&position)));
        for position in 0..expected.unwrap_or(specs.len()) {
            let mismatch = host.routes[position].condition.mismatch(&head);
            prop_assert_eq!(mismatch.is_none(), candidates.contains(&position));
        }
    }
}

fn skipped(index: usize, reason: &str) -> SkippedRoute {
    SkippedRoute {
        index,
        name: String::new(),
        reason: reason.to_owned(),
    }
}

/// A call that no route matches is told which routes were left out: it may be meant for one.
#[test]
fn no_match_names_the_skipped_routes() {
    let mut host = VirtualHost::clone(&host(Vec::new()));
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

/// An error names five routes of each kind, because a table may have a thousand.
#[test]
fn no_match_names_few_of_many_routes() {
    let path = || PathMatcher::Prefix {
        text: "/a.".to_owned(),
        case_sensitive: true,
    };
    let route = |_| Route {
        name: String::new(),
        condition: Condition {
            fraction: Some(Fraction::per_million(0)),
            ..Condition::of_path(path())
        },
        action: RouteAction::NonForwarding,
        filters: FilterOverrides::default(),
    };
    let mut host = VirtualHost::clone(&host((0..6).map(route).collect()));
    host.skipped = (6..12).map(|index| skipped(index, "no")).collect();

    let table = RouteTable::compile(&Arc::new(host), |_| ());
    let error = table.find(&CallHead::of_path("/a.A/M"), || 0).unwrap_err();
    let listed = |range: std::ops::Range<u32>, why: &str| {
        let items = range.map(|at| format!("routes[{at}]: {why}"));
        items.collect::<Vec<_>>().join("; ")
    };
    let tried = listed(0..5, "the call is not one of its 0%");
    let skipped = listed(6..11, "no");
    assert_eq!(
        error.to_string(),
        format!("virtual host host: no route matches /a.A/M (tried: {tried}) (skipped: {skipped})")
    );
}

/// A call is told why the routes for its path did not take it, but not of the routes for other paths. Their places
/// are those in the resource.
#[test]
fn no_match_names_the_routes_for_the_path() {
    let route = |text: &str, headers, fraction| Route {
        name: String::new(),
        condition: Condition {
            path: PathMatcher::Prefix {
                text: text.to_owned(),
                case_sensitive: true,
            },
            headers,
            fraction,
        },
        action: RouteAction::NonForwarding,
        filters: FilterOverrides::default(),
    };
    let present = || HeaderMatcher::new("x-a", HeaderCondition::Present(true), false);
    let mut host = VirtualHost::clone(&host(vec![
        route("/b.", vec![present()], None),
        route("/a.", vec![present()], None),
        route("/A.", vec![], None),
        route("/a.", vec![], Some(Fraction::per_million(0))),
    ]));
    host.skipped = vec![skipped(1, "one")];
    let table = RouteTable::compile(&Arc::new(host), |_| ());
    let error = table.find(&CallHead::of_path("/a.A/M"), || 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "virtual host host: no route matches /a.A/M (tried: routes[2]: header x-a is absent, \
         expected present; routes[3]: the path differs in case; routes[4]: the call is not one of \
         its 0%) (skipped: routes[1]: one)"
    );
}
