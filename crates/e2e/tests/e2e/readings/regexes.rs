//! Regular expressions, which gRPC C-core reads with RE2.
//!
//! Our translation must take and refuse the same, because a control plane writes one pattern for
//! all clients.

use super::*;

/// Patterns that RE2 takes.
const GOOD: [&str; 24] = [
    r"\pL+",
    r"\p{Lu}\P{Lu}",
    r"\p{^Nd}",
    r"[\p{Nd}_]+",
    r"\p{Greek}|a",
    r"[^\p{Han}a]",
    r"\p{Any}",
    r"\0",
    r"\101\102",
    r"\1018",
    r"\777",
    r"[\101-\103]+",
    r"[\000-\377]",
    r"\x{e9}|a",
    "[é-ü]|a",
    r"[^\x{4e00}]",
    r"a\_b\-\ c",
    "a{01}",
    "(a{100}){10}",
    "a{1000}",
    "(a*)*",
    "a*?b+?c??d{2}?",
    "(?s-i:a)(?P<n>b)",
    r"\Qa\E\b\B\A\z\C",
];

/// Patterns that RE2 refuses.
const BAD: [&str; 21] = [
    "a**",
    "a+*",
    "a*??",
    "a{2}{3}",
    "a*{2,}",
    "a{1001}",
    "((a{100}){10}){2}",
    r"\E",
    r"\q",
    r"\u0041",
    r"[\b]",
    r"\8",
    r"\1",
    r"\18",
    r"\x4",
    r"\x{}",
    r"\x{110000}",
    r"\p{Klingon}",
    r"[a-\d]",
    "(?x)a b",
    "(?iu:a)",
];

pub(super) fn cases() -> Vec<Case> {
    let of = |pattern: &'static str, reading| {
        let resource = all_to("svc").edit(|config| {
            let matcher = config.virtual_hosts[0].routes[0].r#match.as_mut().unwrap();
            matcher.path_specifier = Some(PathSpecifier::SafeRegex(RegexMatcher {
                regex: pattern.to_owned(),
                ..RegexMatcher::default()
            }));
        });
        case(pattern, ROUTES, resource.any(), reading, reading)
    };
    let good = GOOD.iter().map(|pattern| of(pattern, Taken));
    good.chain(BAD.iter().map(|pattern| of(pattern, Refused)))
        .collect()
}
