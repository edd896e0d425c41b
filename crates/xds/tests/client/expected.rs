//! Requests as a server expects them, because the two protocols say the same in other fields.
//!
//! In state of the world a request repeats all names, the version that was accepted last and the nonce. In delta
//! it has only what is new.

use crowfly_model::ResourceType;
use crowfly_testkit::{Asked, NODE_ID};
use crowfly_xds::Protocol;

/// The first request for type `R` on the first stream, which introduces the node.
pub(crate) fn introduction<R: ResourceType>(names: &[&str]) -> Asked {
    Asked {
        node: Some(NODE_ID.to_owned()),
        ..asking::<R>(names)
    }
}

/// The first request for type `R` on the first stream, behind that of another type.
pub(crate) fn asking<R: ResourceType>(names: &[&str]) -> Asked {
    Asked {
        type_url: R::TYPE_URL.to_owned(),
        names: owned(names),
        ..Asked::default()
    }
}

/// The answer to the response `nonce`, by a client that asks for `names` and has last accepted `version`. The answer
/// is an ACK; a NACK has a reason as well.
pub(crate) fn answer<R: ResourceType>(
    protocol: Protocol,
    names: &[&str],
    version: &str,
    nonce: &str,
) -> Asked {
    let nonce = nonce.to_owned();
    match protocol {
        Protocol::Delta => Asked {
            nonce,
            ..asking::<R>(&[])
        },
        Protocol::StateOfTheWorld => Asked {
            nonce,
            held: versions(&[("", version)]),
            ..asking::<R>(names)
        },
    }
}

/// The resources that a request says are held.
pub(crate) fn versions(held: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    let held = held.iter().filter(|(_, version)| !version.is_empty());
    held.map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
        .collect()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
