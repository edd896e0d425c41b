//! The clients that a request asks for. Anybody may send conditions, so their number and size have
//! limits.

use crowfly_model::grpc::{StringMatcher, steps};
use crowfly_model::{Errors, Validator};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::r#type::matcher::v3::NodeMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use prost::Message;

/// The most conditions of a request. Each may be an expression of 1 MiB when it is compiled.
const MAX_MATCHERS: usize = 64;

/// The most bytes of all conditions of a request.
const MAX_BYTES: usize = 16 << 10;

/// The requests that an expression counts for, because it is compiled for each request anew.
const EXPRESSION_COST: u32 = 16;

/// The requests that these conditions count for, besides the one that has them. One that has too many is refused before
/// any is compiled.
pub(super) fn cost<'a>(protos: impl Iterator<Item = &'a NodeMatcher>) -> u32 {
    let ids = protos.take(MAX_MATCHERS);
    let patterns = ids.filter_map(|of| of.node_id.as_ref()?.match_pattern.as_ref());
    let costs = patterns.map(|pattern| match pattern {
        MatchPattern::SafeRegex(_) => EXPRESSION_COST,
        _ => 0,
    });
    costs.sum()
}

/// Conditions on nodes, of which a client must meet one. Without any, all clients are asked for.
#[derive(Clone, Debug)]
pub(super) struct NodeMatchers(Vec<Option<StringMatcher>>);

impl NodeMatchers {
    /// Reads the conditions of a request.
    ///
    /// # Errors
    /// There are too many conditions, one is invalid, or one is about metadata, which is not supported.
    pub(super) fn parse(protos: &[NodeMatcher]) -> Result<Self, Errors> {
        let mut v = Validator::default();
        let matchers = v.field("node_matchers", |v| {
            if let Err(message) = check_size(protos) {
                v.error(message);
                return Vec::new();
            }
            let all = protos.iter().enumerate();
            all.map(|(index, proto)| v.index(index, |v| parse_one(proto, v)))
                .collect()
        });
        v.finish(Self(matchers))
    }

    pub(super) fn matches(&self, node: &Node) -> bool {
        let meets = |matcher: &Option<StringMatcher>| {
            let matcher = matcher.as_ref();
            matcher.is_none_or(|matcher| matcher.matches(node.id.as_bytes()))
        };
        self.0.is_empty() || self.0.iter().any(meets)
    }
}

/// Checks the size of all conditions, before any is compiled.
fn check_size(protos: &[NodeMatcher]) -> Result<(), String> {
    let count = protos.len();
    if count > MAX_MATCHERS {
        return Err(format!("expected at most {MAX_MATCHERS}, got {count}"));
    }
    let bytes: usize = protos.iter().map(Message::encoded_len).sum();
    if bytes > MAX_BYTES {
        return Err(format!("expected at most {MAX_BYTES} bytes, got {bytes}"));
    }
    Ok(())
}

fn parse_one(proto: &NodeMatcher, v: &mut Validator) -> Option<StringMatcher> {
    if !proto.node_metadatas.is_empty() {
        let message = "expected none, conditions on metadata are not supported; node_id is";
        v.error_at("node_metadatas", message);
    }
    let id = proto.node_id.as_ref()?;
    v.field("node_id", |v| steps::string_matcher(id, v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::r#type::matcher::v3::{
        RegexMatcher, StringMatcher as Proto, StructMatcher,
    };

    fn id(pattern: MatchPattern) -> NodeMatcher {
        NodeMatcher {
            node_id: Some(Proto {
                match_pattern: Some(pattern),
                ..Proto::default()
            }),
            ..NodeMatcher::default()
        }
    }

    fn node(id: &str) -> Node {
        let id = id.to_owned();
        Node {
            id,
            ..Node::default()
        }
    }

    /// F-10: a client must meet one of the conditions.
    #[test]
    fn one_of_the_conditions_is_enough() {
        let exact = id(MatchPattern::Exact("a".into()));
        let prefix = id(MatchPattern::Prefix("web-".into()));
        let both = NodeMatchers::parse(&[exact, prefix]).unwrap();
        for (name, expected) in [("a", true), ("web-1", true), ("ab", false), ("", false)] {
            assert_eq!(both.matches(&node(name)), expected, "{name}");
        }
        assert!(NodeMatchers::parse(&[]).unwrap().matches(&node("x")));
        let empty = NodeMatchers::parse(&[NodeMatcher::default()]).unwrap();
        assert!(empty.matches(&node("x")), "it has no condition");
    }

    /// L-14: a request cannot make us compile expressions without end.
    #[test]
    fn too_many_conditions_are_refused() {
        let regex = |pattern: &str| {
            id(MatchPattern::SafeRegex(RegexMatcher {
                regex: pattern.to_owned(),
                ..RegexMatcher::default()
            }))
        };
        let refused = |count, pattern: &str| {
            let conditions = vec![regex(pattern); count];
            NodeMatchers::parse(&conditions)
                .err()
                .map(|of| of.to_string())
        };
        assert_eq!(refused(MAX_MATCHERS, "a"), None);
        let expected = "node_matchers: expected at most 64, got 65";
        assert_eq!(refused(65, "a").unwrap(), expected);
        let expected = "node_matchers: expected at most 16384 bytes, got ";
        let long = refused(64, &"a".repeat(256)).unwrap();
        assert!(long.starts_with(expected), "{long}");
    }

    /// F-10: what is not supported is refused with its field.
    #[test]
    fn conditions_that_are_not_supported_are_refused() {
        let metadata = NodeMatcher {
            node_metadatas: vec![StructMatcher::default()],
            ..NodeMatcher::default()
        };
        let error = NodeMatchers::parse(&[NodeMatcher::default(), metadata]).unwrap_err();
        let expected = "node_matchers[1].node_metadatas: expected none, conditions on metadata are not \
                        supported; node_id is";
        assert_eq!(error.to_string(), expected);
        let none = NodeMatcher {
            node_id: Some(Proto::default()),
            ..NodeMatcher::default()
        };
        let error = NodeMatchers::parse(&[none]).unwrap_err().to_string();
        assert!(
            error.starts_with("node_matchers[0].node_id: expected exact"),
            "{error}"
        );
    }
}
