//! The conditions of routes and certificates, as xDS writes them.
//!
//! A text is matched by `string_match` (gRFC A63), because Envoy calls the older fields deprecated.

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, Int64Range, fractional_percent};
use envoy_types::pb::google::protobuf::BoolValue;
use pb::header_matcher::HeaderMatchSpecifier;
use pb::route_match::PathSpecifier;

use crate::service::matching::{HeaderMatch, Match, PathMatch, ValueMatch};
use crate::service::pattern::{TextIs, TextPattern};
use crate::service::text::{Percent, Regex};

/// The condition of a route.
pub(super) fn of_route(matches: &Match) -> pb::RouteMatch {
    let (path, ignore_case) = match &matches.path {
        PathMatch::All => (PathSpecifier::Prefix("/".to_owned()), false),
        PathMatch::Exactly { path, ignore_case } => {
            (PathSpecifier::Path(path.clone()), *ignore_case)
        }
        PathMatch::Like(expression) => (PathSpecifier::SafeRegex(regex(expression)), false),
        PathMatch::StartingWith {
            prefix,
            ignore_case,
        } => (PathSpecifier::Prefix(prefix.clone()), *ignore_case),
    };
    let fraction = matches.fraction.map(|percent| RuntimeFractionalPercent {
        default_value: Some(fraction(percent)),
        ..RuntimeFractionalPercent::default()
    });
    pb::RouteMatch {
        path_specifier: Some(path),
        case_sensitive: ignore_case.then_some(BoolValue { value: false }),
        headers: matches.headers.iter().map(of_header).collect(),
        runtime_fraction: fraction,
        ..pb::RouteMatch::default()
    }
}

fn of_header(header: &HeaderMatch) -> pb::HeaderMatcher {
    let value = match &header.value {
        ValueMatch::Present(present) => HeaderMatchSpecifier::PresentMatch(*present),
        ValueMatch::Range(range) => HeaderMatchSpecifier::RangeMatch(Int64Range {
            start: range.from,
            end: range.below,
        }),
        ValueMatch::Text(text) => HeaderMatchSpecifier::StringMatch(of_text(text)),
    };
    pb::HeaderMatcher {
        name: header.name.0.clone(),
        invert_match: header.not,
        header_match_specifier: Some(value),
        ..pb::HeaderMatcher::default()
    }
}

/// The condition on a text.
pub(super) fn of_text(text: &TextPattern) -> StringMatcher {
    use string_matcher::MatchPattern;
    let pattern = match &text.is {
        TextIs::Containing(part) => MatchPattern::Contains(part.clone()),
        TextIs::Exactly(text) => MatchPattern::Exact(text.clone()),
        TextIs::Like(expression) => MatchPattern::SafeRegex(regex(expression)),
        TextIs::StartingWith(prefix) => MatchPattern::Prefix(prefix.clone()),
        TextIs::EndingWith(suffix) => MatchPattern::Suffix(suffix.clone()),
    };
    StringMatcher {
        ignore_case: text.ignore_case,
        match_pattern: Some(pattern),
    }
}

/// A part of all calls, in the largest unit in which it is whole.
pub(super) fn fraction(percent: Percent) -> FractionalPercent {
    use fractional_percent::DenominatorType::{Hundred, Million, TenThousand};
    let millionths = percent.millionths();
    let (numerator, denominator) = match millionths {
        of if of % 10_000 == 0 => (of / 10_000, Hundred),
        of if of % 100 == 0 => (of / 100, TenThousand),
        of => (of, Million),
    };
    FractionalPercent {
        numerator,
        denominator: denominator.into(),
    }
}

fn regex(expression: &Regex) -> RegexMatcher {
    RegexMatcher {
        regex: expression.0.clone(),
        ..RegexMatcher::default()
    }
}
