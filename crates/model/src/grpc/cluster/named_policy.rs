//! Policies by the names of gRPC's registry, with the JSON of its service config.
//!
//! A `TypedStruct` names a policy in this way. It may name any policy that the client has: gRPC's
//! own, or one of the program (gRFC A52).

use envoy_types::pb::google::protobuf::Struct;
use serde_json::Value;

use super::{
    CustomPolicies, LbPolicy, custom,
    endpoint_policy::{self, EndpointPolicy},
    lb_policy::is_too_deep,
};
use crate::{Validator, grpc::json};

const LEAST_REQUEST: &str = "least_request_experimental";
const PICK_FIRST: &str = "pick_first";
const RING_HASH: &str = "ring_hash_experimental";
const ROUND_ROBIN: &str = "round_robin";
const WRR_LOCALITY: &str = "xds_wrr_locality_experimental";

/// The names of those policies of gRPC that this client has.
const OWN: [&str; 5] = [
    LEAST_REQUEST,
    PICK_FIRST,
    RING_HASH,
    ROUND_ROBIN,
    WRR_LOCALITY,
];

/// Reads the policy that a `TypedStruct` at `depth` names. `None` if no policy has that name; its
/// configuration is not read then. `Some(None)` after an error.
pub(super) fn parse(
    name: &str,
    config: Struct,
    custom: &CustomPolicies,
    depth: usize,
    v: &mut Validator,
) -> Option<Option<LbPolicy>> {
    if !is_known(name, custom) {
        return None;
    }
    Some(v.field("value", |v| match json::object(config) {
        Ok(config) => read(name, config, custom, depth, v),
        Err(why) => {
            v.error(why);
            None
        }
    }))
}

fn is_known(name: &str, custom: &CustomPolicies) -> bool {
    OWN.contains(&name) || custom.find(name).is_some()
}

/// Reads a policy that is known. A policy of the program replaces one of gRPC of the same name.
fn read(
    name: &str,
    config: Value,
    custom: &CustomPolicies,
    depth: usize,
    v: &mut Validator,
) -> Option<LbPolicy> {
    let own = OWN.contains(&name) && custom.named(name).is_none();
    let policy = match name {
        LEAST_REQUEST if own => {
            let field = "choiceCount";
            let count = number(&config, field, v)?.map(|count| count.try_into());
            endpoint_policy::least_request(count.map(|count| count.unwrap_or(u32::MAX)), field, v)
        }
        PICK_FIRST if own => {
            let shuffle = flag(&config, "shuffleAddressList", v)?;
            Some(EndpointPolicy::PickFirst { shuffle })
        }
        RING_HASH if own => {
            let fields = ["minRingSize", "maxRingSize"];
            let min = number(&config, fields[0], v)?;
            // The JSON has a smaller default than the message (gRFC A42).
            let max = number(&config, fields[1], v)?.or(Some(4096));
            endpoint_policy::ring_hash(min, max, fields, v)
        }
        ROUND_ROBIN if own => Some(EndpointPolicy::RoundRobin),
        WRR_LOCALITY if own => return wrr_locality(&config, custom, depth, v),
        _ => custom::read(name, config, custom, v).map(EndpointPolicy::Custom),
    };
    policy.map(LbPolicy::Endpoints)
}

/// Reads `childPolicy`. The first known policy of the list is the child.
fn wrr_locality(
    config: &Value,
    custom: &CustomPolicies,
    depth: usize,
    v: &mut Validator,
) -> Option<LbPolicy> {
    v.field("childPolicy", |v| {
        if is_too_deep(depth + 1, v) {
            return None;
        }
        let mut others = Vec::new();
        let list = config.get("childPolicy").and_then(Value::as_array);
        for (i, entry) in list.into_iter().flatten().enumerate() {
            let Some((name, config)) = only_entry(entry) else {
                v.index(i, |v| v.error("expected an object with one policy in it"));
                return None;
            };
            if !is_known(name, custom) {
                others.push(name);
                continue;
            }
            let inner = v.index(i, |v| {
                v.field(name, |v| read(name, config.clone(), custom, depth + 1, v))
            })?;
            return Some(inner.by_locality());
        }
        let got = if others.is_empty() {
            "none".to_owned()
        } else {
            others.join(", ")
        };
        v.error(format!("expected a supported policy, got {got}"));
        None
    })
}

fn only_entry(value: &Value) -> Option<(&str, &Value)> {
    let mut entries = value.as_object()?.iter();
    let (name, config) = entries.next()?;
    (entries.next().is_none() && config.is_object()).then_some((name, config))
}

/// The whole number in field `name`, which proto JSON may write as a string. `None` after an error.
fn number(config: &Value, name: &str, v: &mut Validator) -> Option<Option<u64>> {
    let number = match config.get(name) {
        None | Some(Value::Null) => return Some(None),
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_u64(),
    };
    if number.is_none() {
        let got = config.get(name).map(Value::to_string).unwrap_or_default();
        v.error_at(name, format!("expected a whole number, got {got}"));
    }
    number.map(Some)
}

/// The boolean in field `name`; `false` if the field is not set, `None` after an error.
fn flag(config: &Value, name: &str, v: &mut Validator) -> Option<bool> {
    match config.get(name) {
        None | Some(Value::Null) => Some(false),
        Some(Value::Bool(flag)) => Some(*flag),
        Some(other) => {
            v.error_at(name, format!("expected true or false, got {other}"));
            None
        }
    }
}
