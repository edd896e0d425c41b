//! Samples of the three ways in turn, compared round by round, because the machine's speed changes
//! less within a round than over a run.

use serde::Serialize;

use super::{
    BenchError,
    rig::{Rig, WAYS, Way},
    shape::Shape,
};
use crate::{
    bench::Quartiles,
    peer::{Order, Sample},
};

/// A workload at a number of services, by the three ways.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Compared {
    /// The number of services that are programmed.
    pub(super) services: u32,
    /// The median time of a connection that the agent routes, divided by that of a direct one.
    pub(super) ours_to_direct: Ratio,
    /// The median time of a connection by nftables, divided by that of a direct one.
    pub(super) nft_to_direct: Ratio,
    pub(super) direct: Side,
    pub(super) ours: Side,
    pub(super) nft: Side,
}

/// The quartiles of quotients within rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) lower: f64,
    pub(super) median: f64,
    pub(super) upper: f64,
}

/// Medians over the rounds, of one way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Side {
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// One sample by each way, in the order of [`WAYS`].
type Round = [Sample; 3];

impl Compared {
    /// Takes samples in turn: each round begins with another way. The first round warms up.
    pub(super) async fn measure(
        rig: &mut Rig,
        shape: &Shape,
        rounds: usize,
        order: impl Fn(Way) -> Order,
    ) -> Result<Self, BenchError> {
        let mut taken = Vec::new();
        for number in 0..=rounds {
            let mut samples = Vec::new();
            for turn in 0..WAYS.len() {
                let index = (number + turn) % WAYS.len();
                let way = WAYS[index];
                samples.push((index, rig.sample(way, &order(way)).await?));
            }
            samples.sort_by_key(|(index, _)| *index);
            let samples: Vec<_> = samples.into_iter().map(|(_, sample)| sample).collect();
            if let Ok(round) = Round::try_from(samples)
                && number > 0
            {
                taken.push(round);
            }
        }
        Ok(Self::of(shape.services, &taken))
    }

    fn of(services: u32, rounds: &[Round]) -> Self {
        // Medians of a sample, because a program that interrupts a sample changes its rate, and hardly its median.
        let ratio = |way: usize| {
            let ratios = rounds.iter().map(|round| round[way].p50 / round[0].p50);
            let Quartiles {
                lower,
                median,
                upper,
            } = Quartiles::of(ratios);
            Ratio {
                lower,
                median,
                upper,
            }
        };
        let side = |way: usize| {
            let median = |of: fn(&Sample) -> f64| {
                Quartiles::of(rounds.iter().map(|round| of(&round[way]))).median
            };
            Side {
                per_second: median(Sample::rate),
                p50_us: median(|sample| sample.p50),
                p99_us: median(|sample| sample.p99),
            }
        };
        Self {
            services,
            ours_to_direct: ratio(1),
            nft_to_direct: ratio(2),
            direct: side(0),
            ours: side(1),
            nft: side(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_times_within_rounds() {
        let sample = |rate: u64| Sample {
            count: rate,
            seconds: 1.0,
            p50: 1e6 / rate as f64,
            p99: 2e6 / rate as f64,
        };
        // The machine slowed down by half before the last round.
        let rounds = [[100, 80, 50], [100, 80, 50], [50, 40, 25]].map(|round| round.map(sample));
        let compared = Compared::of(7, &rounds);
        assert_eq!(compared.ours_to_direct.median, 1.25);
        assert_eq!(compared.ours_to_direct.upper, 1.25);
        assert_eq!(compared.nft_to_direct.median, 2.0);
        assert_eq!(compared.ours.per_second, 80.0);
        assert_eq!(compared.ours.p99_us, 25_000.0);
    }
}
