//! Our own channels report to our own control plane.
//!
//! Users of Crowfly have this pair, so its figures must be exact from the calls to the command.

use crowfly::{Bootstrap, Channel};
use crowfly_e2e::loads::{self, ServiceLoads};
use crowfly_e2e::product::Control;
use crowfly_model::grpc::endpoints::LocalityId;
use serde_json::json;
use tonic::Code;

use super::{CLIENTS, Fleet, Truth, call};
use crate::CROWFLY;

fn channel(control: &Control) -> Channel {
    let bootstrap = Bootstrap::builder(&control.address.to_string())
        .unwrap()
        .node_id("crowfly")
        .locality(&LocalityId::new("r1", CLIENTS, ""))
        .build();
    let builder = Channel::builder("xds:///svc").bootstrap(bootstrap);
    builder.build().unwrap()
}

/// Makes 100 calls, of which some fail and some are dropped.
async fn calls(channel: Channel) -> Truth {
    let mut truth = Truth::default();
    for (code, count) in [
        (Code::Ok, 60),
        (Code::Unavailable, 20),
        (Code::NotFound, 20),
    ] {
        for _ in 0..count {
            call(&channel, code, &mut truth).await;
        }
    }
    truth
}

/// S13-02, S13-04: the reports of four of our channels, which call at once, agree with their calls.
/// When the channels are dropped, the streams end, and the totals stay.
#[tokio::test(flavor = "multi_thread")]
async fn the_reports_of_our_channels_agree_with_their_calls() {
    let fleet = Fleet::start();
    let control = CROWFLY.control_reporting(&fleet.config(), "1s");
    let channels: Vec<_> = (0..4).map(|_| channel(&control)).collect();
    let calling: Vec<_> = channels
        .iter()
        .cloned()
        .map(|of| tokio::spawn(calls(of)))
        .collect();
    let mut truth = Truth::default();
    for calls in calling {
        let of = calls.await.unwrap();
        truth.failed += of.failed;
        truth.dropped += of.dropped;
        for (zone, count) in of.succeeded {
            *truth.succeeded.entry(zone).or_default() += count;
        }
    }
    assert_eq!(truth.calls(), 400);
    assert!(truth.dropped > 0 && truth.failed > 0, "{truth:?}");
    truth.assert_shown(&control);

    drop(channels);
    loads::until(control.admin, "end of the streams", |loads| {
        loads["reporters"] == json!([])
    });
    truth.assert_shown(&control);
}

/// The last calls of a channel are in its last report: they are counted although the channel is
/// dropped long before its interval is over.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_calls_of_a_channel_are_reported() {
    let fleet = Fleet::start();
    let control = CROWFLY.control_reporting(&fleet.config(), "600s");
    let channel = channel(&control);
    let truth = calls(channel.clone()).await;
    // The stream must be there to report on.
    loads::until(control.admin, "stream", |loads| {
        loads["reporters"]
            .as_array()
            .is_some_and(|all| all.len() == 1)
    });
    assert_eq!(
        ServiceLoads::of(&loads::page(control.admin), "svc").ended(),
        0
    );
    drop(channel);
    truth.assert_shown(&control);
}
