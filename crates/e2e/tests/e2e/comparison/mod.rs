//! gRPC C-core and our channel get one input, and their results must be equal where nothing is
//! random.
//!
//! A rule that we misread shows as a difference, without a list of expected results.

mod faults;
mod hashes;
mod matchers;
mod outliers;
mod retries;
mod routing;
mod sessions;
mod tables;
mod timeouts;

use crowfly_e2e::comparison::{Backends, Rig};
use crowfly_e2e::{peers, resources};
use serde_json::Value;

use crate::CROWFLY;

/// Starts both clients with one cluster for each backend, which has its name, and these other resources.
/// `None` means that the calling test is to be left out.
fn rig(backends: &[&str], others: Vec<Value>) -> Option<Rig> {
    let python = peers::python()?;
    let backends = Backends::start(backends);
    let mut all = others;
    for (name, address) in &backends.addresses {
        all.push(resources::cluster(name));
        all.push(resources::endpoints(name, &[*address]));
    }
    Some(Rig::start(CROWFLY, python, backends, all))
}
