//! Shares of calls that the control plane wants dropped.
//!
//! They come as fractions of several denominators, and are scaled to a million so that they compare.

use envoy_types::pb::envoy::{
    config::endpoint::v3::cluster_load_assignment::policy as pb,
    r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
};

use crate::{Validator, grpc::decode::require_text};

const MILLION: u64 = 1_000_000;

/// A share of calls to drop, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropOverload {
    /// The reason, by the name that load reports give it.
    pub category: String,
    /// The number of calls to drop of a million calls; at most a million.
    pub per_million: u32,
}

pub(super) fn parse(proto: pb::DropOverload, v: &mut Validator) -> Option<DropOverload> {
    require_text(&proto.category, "category", v);
    let per_million = v.field("drop_percentage", |v| match proto.drop_percentage {
        Some(share) => per_million(share, v),
        None => {
            v.error("expected a share, got none");
            None
        }
    });
    Some(DropOverload {
        category: proto.category,
        per_million: per_million?,
    })
}

/// Scales in 64 bits, because 32 bits would overflow. A share above 100 % becomes 100 % (S3-12).
fn per_million(share: FractionalPercent, v: &mut Validator) -> Option<u32> {
    let scale = match DenominatorType::try_from(share.denominator) {
        Ok(DenominatorType::Hundred) => 10_000,
        Ok(DenominatorType::TenThousand) => 100,
        Ok(DenominatorType::Million) => 1,
        Err(_) => {
            let got = share.denominator;
            v.error_at(
                "denominator",
                format!("expected HUNDRED, TEN_THOUSAND or MILLION, got {got}"),
            );
            return None;
        }
    };
    let capped = (u64::from(share.numerator) * scale).min(MILLION);
    u32::try_from(capped).ok()
}
