//! A balancing policy of the program's own, which a cluster names and configures (gRFC A52).
//!
//! `cargo run -p crowfly --example custom_policy`
//!
//! The policy uses only some of a cluster's backends, so that a program with few calls does not
//! hold connections to all of them. The control plane says how many. The control plane and the
//! backends are in `mesh.rs`.

mod mesh;

use std::collections::BTreeSet;
use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crowfly::Channel;
use crowfly::policy::{
    CallContext, Connectivity, CustomPolicy, Endpoint, PolicyRegistry, ReadySet, Selection,
    Selector,
};
use mesh::Mesh;
use serde::Deserialize;
use serde_json::json;

/// The name that clusters use.
const NAME: &str = "myorg.Subset";

/// The policy, which is no more than its configuration, such as `{"size": 2}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subset {
    /// The number of backends that are used.
    size: NonZeroUsize,
}

impl CustomPolicy for Subset {
    fn name(&self) -> &str {
        NAME
    }

    fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> {
        Arc::new(Turns {
            size: self.size.get(),
            next: AtomicUsize::new(0),
        })
    }
}

/// Chooses among the backends of one list: the first `size` that can be reached, each in turn.
#[derive(Debug)]
struct Turns {
    size: usize,
    next: AtomicUsize,
}

impl Selector for Turns {
    fn wants(&self, endpoint: usize, states: &[Connectivity]) -> bool {
        let before = states.iter().take(endpoint);
        let better = before.filter(|state| **state != Connectivity::TransientFailure);
        better.count() < self.size
    }

    fn pick<'a>(&self, _: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        let turn = self.next.fetch_add(1, Relaxed);
        let used = ready.len().min(self.size);
        let chosen = turn.checked_rem(used).and_then(|place| ready.get(place));
        chosen.map_or(Selection::Queue, Selection::Send)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(|line| println!("{line}")).await
}

/// Runs the program, and tells each step as a line.
pub(crate) async fn run(mut tell: impl FnMut(String)) -> Result<(), Box<dyn Error>> {
    let policies = PolicyRegistry::new().with(NAME, |config| Subset::deserialize(config));
    let mut mesh = Mesh::start(["a", "b", "c"]).await?;

    mesh.balance_by(NAME, &json!({ "size": 1 }));
    let channel = Channel::builder("xds:///greeter")
        .bootstrap(mesh.bootstrap())
        .policies(&policies)
        .build()?;
    tell(format!("size 1: {:?}", calls(&channel, 1).await?));

    // A changed configuration is followed by the calls that come after it.
    mesh.balance_by(NAME, &json!({ "size": 2 }));
    tell(format!("size 2: {:?}", calls(&channel, 2).await?));

    // One that the policy does not understand is refused, and the last good one is used on.
    mesh.balance_by(NAME, &json!({ "size": 0 }));
    tell(format!("size 0: {}", mesh.refusal().await));
    tell(format!("size 2: {:?}", calls(&channel, 2).await?));
    Ok(())
}

/// Calls until the answers to ten calls come from this many backends, and tells which.
async fn calls(channel: &Channel, backends: usize) -> Result<BTreeSet<String>, tonic::Status> {
    loop {
        let mut answers = BTreeSet::new();
        for _ in 0..10 {
            answers.insert(mesh::call(channel).await?);
        }
        if answers.len() == backends {
            return Ok(answers);
        }
    }
}
