//! The cost of routing: nanoseconds and allocations per call, for tables of one and of a thousand routes.
//!
//! `cargo bench -p crowfly-model`. Each figure is the minimum of 20 samples: the cost of the code, not of what else
//! the machine does. The call has the headers of a tonic client in an `http::HeaderMap`, as a channel has them.
//! Beside each figure is that of a plain scan over the same routes in the same run.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_model::grpc::filter::FilterOverrides;
use crowfly_model::grpc::route::{
    CallHead, Condition, HeaderCondition, HeaderMatcher, Headers, PathMatcher, Route, RouteAction,
    RouteTable, VirtualHost,
};
use crowfly_model::grpc::{Fraction, StringMatcher, StringPattern};
use http::{HeaderMap, HeaderName, HeaderValue};

const SAMPLES: usize = 20;
const ROUTES: usize = 1000;
const PATH: &str = "/shop.orders.v1.Orders/Method0999";
/// A call on a table with one route, in nanoseconds.
const LIMIT_PLAIN: f64 = 50.0;
/// The greatest ratio between an exact path among 1,000 and one alone.
const LIMIT_RATIO: f64 = 3.0;

fn main() {
    println!("ns per call, minimum of {SAMPLES} samples");
    println!(
        "{:<44}{:>10}{:>10}{:>8}{:>14}",
        "", "table", "scan", "ratio", "allocations"
    );
    let [plain, one, exact, ..] = cases().map(|case| {
        let table = RouteTable::compile(&case.host, |_| ());
        let headers = RequestHeaders(case.headers);
        let call = CallHead {
            path: PATH,
            headers: &headers,
        };
        let expected = Some(case.host.routes.len() - 1);
        let find = || table.position(black_box(&call), || 0);
        let scan = || scan(black_box(&case.host), black_box(&call));
        assert_eq!(find(), expected, "{}", case.name);
        assert_eq!(scan(), expected, "{}", case.name);
        let allocations = allocation_counter::measure(|| _ = black_box(find())).count_total;
        let (table_ns, scan_ns) = (minimum(find), minimum(scan));
        println!(
            "{:<44}{table_ns:>10.1}{scan_ns:>10.1}{:>8.1}{allocations:>14}",
            case.name,
            scan_ns / table_ns
        );
        assert_eq!(allocations, 0, "{}", case.name);
        table_ns
    });
    println!("\nlimits");
    println!("{plain:.1} ns on one route, at most {LIMIT_PLAIN} allowed");
    let ratio = exact / one;
    println!("{ratio:.2} times that of one path at {ROUTES}, at most {LIMIT_RATIO} allowed");
    assert!(plain <= LIMIT_PLAIN && ratio <= LIMIT_RATIO, "too slow");
}

struct Case {
    name: &'static str,
    host: Arc<VirtualHost>,
    headers: HeaderMap,
}

/// The last route of each table is the one that the call takes.
fn cases() -> [Case; 9] {
    let any = || prefix("");
    let many = |path: fn(usize) -> PathMatcher| table((0..ROUTES).map(path), |_| Vec::new());
    let case = |name, host, headers: &[(&str, &str)]| Case {
        name,
        host,
        headers: request(headers),
    };
    let twenty: Vec<_> = (0..20)
        .map(|i| (format!("x-h{i}"), format!("v{i}")))
        .collect();
    let twenty: Vec<_> = twenty
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    let of_twenty = || {
        let headers = twenty.iter();
        headers
            .map(|(name, value)| exact_header(name, value))
            .collect()
    };
    [
        case("1 prefix", table([any()], |_| Vec::new()), &[]),
        case(
            "1 exact path",
            table([exact(ROUTES - 1)], |_| Vec::new()),
            &[],
        ),
        case("1,000 exact paths", many(exact), &[]),
        case("1,000 prefixes", many(|i| prefix(&method(i))), &[]),
        case("1,000 paths in any case", many(in_any_case), &[]),
        case("1,000 regexes", many(regex), &[]),
        case(
            "1 route, 20 header matchers",
            table([any()], |_| of_twenty()),
            &twenty,
        ),
        case(
            "1,000 routes, 1 header matcher each",
            table((0..ROUTES).map(|_| any()), |i| {
                vec![exact_header("x-tenant", &format!("tenant-{i}"))]
            }),
            &[("x-tenant", "tenant-999")],
        ),
        case("1,000 routes with a share of 0%", shares(), &[]),
    ]
}

fn scan<H: Headers>(host: &VirtualHost, call: &CallHead<'_, H>) -> Option<usize> {
    let is_taken = |route: &Route| {
        let condition = &route.condition;
        condition.is_met_by(call) && condition.fraction.is_none_or(|share| share.takes(0))
    };
    host.routes.iter().position(is_taken)
}

fn minimum(mut call: impl FnMut() -> Option<usize>) -> f64 {
    let started = Instant::now();
    black_box(call());
    let once = started.elapsed().max(Duration::from_nanos(20));
    let rounds = (Duration::from_millis(2).as_nanos() / once.as_nanos()).clamp(10, 100_000);
    let samples = (0..SAMPLES).map(|_| {
        let started = Instant::now();
        for _ in 0..rounds {
            black_box(call());
        }
        started.elapsed().as_nanos() as f64 / rounds as f64
    });
    samples.fold(f64::INFINITY, f64::min)
}

fn table(
    paths: impl IntoIterator<Item = PathMatcher>,
    headers: impl Fn(usize) -> Vec<HeaderMatcher>,
) -> Arc<VirtualHost> {
    let routes = paths.into_iter().enumerate().map(|(i, path)| Route {
        name: String::new(),
        condition: Condition {
            headers: headers(i),
            ..Condition::of_path(path)
        },
        action: RouteAction::NonForwarding,
        filters: FilterOverrides::default(),
    });
    Arc::new(VirtualHost {
        name: "shop".to_owned(),
        domains: Vec::new(),
        routes: routes.collect(),
        skipped: Vec::new(),
        filters: FilterOverrides::default(),
    })
}

fn shares() -> Arc<VirtualHost> {
    let mut host = VirtualHost::clone(&table((0..ROUTES).map(|_| prefix("")), |_| Vec::new()));
    for route in &mut host.routes[..ROUTES - 1] {
        route.condition.fraction = Some(Fraction::per_million(0));
    }
    Arc::new(host)
}

fn method(i: usize) -> String {
    format!("/shop.orders.v1.Orders/Method{i:04}")
}

fn prefix(text: &str) -> PathMatcher {
    PathMatcher::Prefix {
        text: text.to_owned(),
        case_sensitive: true,
    }
}

fn exact(i: usize) -> PathMatcher {
    PathMatcher::Exact {
        text: method(i),
        case_sensitive: true,
    }
}

fn in_any_case(i: usize) -> PathMatcher {
    PathMatcher::Exact {
        text: method(i).to_uppercase(),
        case_sensitive: false,
    }
}

fn regex(i: usize) -> PathMatcher {
    let pattern = format!("/shop\\.orders\\.v[0-9]+\\.Orders/Method{i:04}(Async)?");
    PathMatcher::Regex(pattern.parse().unwrap())
}

fn exact_header(name: &str, value: &str) -> HeaderMatcher {
    let exact = StringMatcher::new(StringPattern::Exact(value.to_owned()), false);
    HeaderMatcher::new(name, HeaderCondition::Text(exact), false)
}

/// The headers of a tonic client, and these.
fn request(own: &[(&str, &str)]) -> HeaderMap {
    let usual = [
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "tonic"),
        ("grpc-timeout", "1S"),
    ];
    let all = usual.iter().chain(own);
    all.map(|(name, value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    })
    .collect()
}

struct RequestHeaders(HeaderMap);

impl Headers for RequestHeaders {
    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}
