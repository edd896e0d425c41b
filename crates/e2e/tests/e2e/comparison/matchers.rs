//! Random conditions of routes, and metadata that often meets them.
//!
//! The names, values and patterns are few, so that a random call often meets a random condition.

use fastrand::Rng;
use serde_json::{Value, json};

/// The methods that are called.
pub(super) const PATHS: [&str; 8] = [
    "/shop.Cart/Add",
    "/shop.Cart/AddAll",
    "/shop.Cart/Remove",
    "/shop.cart/add",
    "/shop.CartAdmin/Add",
    "/pay.Pay/Charge",
    "/pay.Pay/Refund",
    "/a/b",
];

const PREFIXES: [&str; 6] = [
    "/shop.",
    "/shop.Cart",
    "/shop.Cart/",
    "/SHOP.cart/ad",
    "/pay.Pay/",
    "/pay.Pay/Charge",
];

/// Patterns for paths. A match is of the whole path, so of two alternatives the second may be right.
const PATH_PATTERNS: [&str; 12] = [
    "/shop.Cart/Add|/shop.Cart/AddAll",
    "/shop\\..*",
    "/pay.Pay/(Charge|Refund)",
    "(?i)/SHOP.CART/.*",
    "/[a-z]+\\.[A-Z][a-z]+/\\w+",
    "/.*/Add",
    "/shop.Cart",
    "^/a/b$",
    "/a/b?|/a",
    ".*/(Add|Remove|)(All)?",
    "(/\\p{Ll}+\\p{Po}?\\p{Latin}*)+",
    "/\\160ay.\\x{50}\\PN+|/[^\\p{Greek}]/b",
];

/// Values of `x-user`; the empty one is sent, too.
const USERS: [&str; 7] = ["alice", "Alice", "alice-b", "bob", "", "a,b", "ali ce"];
const USER_PATTERNS: [&str; 15] = [
    "a|alice",
    "alice|a",
    "(?i)ALICE",
    "al.*",
    "a*?",
    "",
    "[^b]*",
    "(a|b|,)+",
    "[[:alpha:]]+",
    "\\Aalice\\z|^bob$",
    "\\x61li(?:ce)(?P<rest>-b)?",
    "(?U)a.*e{1,2}",
    "[\\p{L}\\pZ]+",
    "(?i)\\p{Lu}{3,5}\\P{L}?.?",
    "[\\141-\\x{6f}]*\\S*",
];
const USER_PARTS: [&str; 5] = ["a", "ali", "ALI", "e", "b"];

const NUMBERS: [&str; 12] = [
    "0",
    "7",
    "-7",
    "+7",
    "007",
    "10",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "7.0",
    "0x7",
    "seven",
];
const RANGES: [(i64, i64); 5] = [(0, 10), (-10, 0), (7, 8), (i64::MIN, i64::MAX), (7, 7)];

/// Metadata of which a call has two entries. gRPC sees both as one, joined by a comma.
const MANY: [&str; 2] = ["a", "b"];

/// A random element.
pub(super) fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// True in so many of a hundred cases.
pub(super) fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(..100) < percent
}

/// A condition on the path. Its kinds are added to `kinds`.
pub(super) fn path(rng: &mut Rng, kinds: &mut Vec<&'static str>) -> Value {
    let (mut condition, kind) = match rng.u32(..12) {
        // Every path, so that the headers decide.
        0..5 => (json!({ "prefix": pick(rng, &["", "/"]) }), "prefix of all"),
        5..8 => (json!({ "prefix": pick(rng, &PREFIXES) }), "prefix"),
        8..10 => (json!({ "path": pick(rng, &PATHS) }), "path"),
        _ => {
            let pattern = json!({ "regex": pick(rng, &PATH_PATTERNS) });
            (json!({ "safe_regex": pattern }), "safe_regex")
        }
    };
    kinds.push(kind);
    if kind != "safe_regex" && chance(rng, 25) {
        condition["case_sensitive"] = json!(false);
        kinds.push("case_sensitive: false");
    }
    condition
}

/// A condition on a header. Its kinds are added to `kinds`.
pub(super) fn header(rng: &mut Rng, kinds: &mut Vec<&'static str>) -> Value {
    let (mut condition, kind) = match rng.u32(..16) {
        0..5 => user(rng),
        5..10 => string_match(rng, kinds),
        10..12 => {
            let (start, end) = pick(rng, &RANGES);
            // Proto JSON has 64-bit numbers as text.
            let range = json!({ "start": start.to_string(), "end": end.to_string() });
            (json!({ "name": "x-num", "range_match": range }), "range")
        }
        12 => {
            let joined = ["a,b", "b,a", "a", "a,a"];
            let value = pick(rng, &joined);
            (json!({ "name": "x-many", "exact_match": value }), "joined")
        }
        13 => present(rng, "x-user", "present"),
        14 => present(rng, "trace-bin", "-bin"),
        _ => {
            let values = ["application/grpc", "application/grpc+proto", "text/plain"];
            let value = pick(rng, &values);
            let condition = json!({ "name": "content-type", "exact_match": value });
            (condition, "content-type")
        }
    };
    kinds.push(kind);
    if chance(rng, 25) {
        condition["invert_match"] = json!(true);
        kinds.push("invert_match");
    }
    condition
}

fn user(rng: &mut Rng) -> (Value, &'static str) {
    let name = "x-user";
    let part = pick(rng, &USER_PARTS);
    match rng.u32(..5) {
        0 => {
            let value = pick(rng, &USERS);
            (json!({ "name": name, "exact_match": value }), "exact_match")
        }
        1 => {
            let pattern = json!({ "regex": pick(rng, &USER_PATTERNS) });
            let condition = json!({ "name": name, "safe_regex_match": pattern });
            (condition, "safe_regex_match")
        }
        2 => (
            json!({ "name": name, "prefix_match": part }),
            "prefix_match",
        ),
        3 => (
            json!({ "name": name, "suffix_match": part }),
            "suffix_match",
        ),
        _ => {
            let condition = json!({ "name": name, "contains_match": part });
            (condition, "contains_match")
        }
    }
}

/// gRFC A63.
fn string_match(rng: &mut Rng, kinds: &mut Vec<&'static str>) -> (Value, &'static str) {
    let part = pick(rng, &USER_PARTS);
    let (mut matcher, kind) = match rng.u32(..5) {
        0 => (json!({ "exact": pick(rng, &USERS) }), "exact"),
        1 => (json!({ "prefix": part }), "prefix of string_match"),
        2 => (json!({ "suffix": part }), "suffix of string_match"),
        3 => (json!({ "contains": part }), "contains of string_match"),
        _ => {
            let pattern = json!({ "regex": pick(rng, &USER_PATTERNS) });
            (
                json!({ "safe_regex": pattern }),
                "safe_regex of string_match",
            )
        }
    };
    // C-core refuses the flag beside a pattern: see `readings`.
    if kind != "safe_regex of string_match" && chance(rng, 50) {
        matcher["ignore_case"] = json!(true);
        kinds.push("ignore_case");
    }
    (json!({ "name": "x-user", "string_match": matcher }), kind)
}

fn present(rng: &mut Rng, name: &str, kind: &'static str) -> (Value, &'static str) {
    (json!({ "name": name, "present_match": rng.bool() }), kind)
}

/// The metadata of a call.
pub(super) fn metadata(rng: &mut Rng) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    let mut add = |key: &str, value: &str| entries.push((key.to_owned(), value.to_owned()));
    if chance(rng, 75) {
        add("x-user", pick(rng, &USERS));
    }
    if chance(rng, 60) {
        add("x-num", pick(rng, &NUMBERS));
    }
    if chance(rng, 60) {
        add("x-many", pick(rng, &MANY));
        add("x-many", pick(rng, &MANY));
    }
    if chance(rng, 50) {
        add("trace-bin", "00ff");
    }
    entries
}
