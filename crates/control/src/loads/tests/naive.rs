//! Any sequence of events gives the figures that are counted from a list of all events.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Something that happens to the books.
#[derive(Clone, Debug)]
enum Step {
    Open {
        zone: usize,
    },
    /// The stream with this number, of those that are open, is closed.
    Close {
        which: usize,
    },
    Report {
        which: usize,
        parts: Vec<ReportPart>,
    },
    Wait {
        seconds: u64,
    },
}

#[derive(Clone, Debug)]
struct ReportPart {
    cluster: usize,
    zone: usize,
    counts: [u64; 4],
    dropped: u64,
    categories: Vec<(usize, u64)>,
    seconds: i64,
}

const ZONES: [&str; 3] = ["a", "b", "c"];
const CLUSTERS: [&str; 3] = ["shop", "cart", "pay"];

/// The figures of a row: issued, succeeded, errors, in progress, dropped.
type Figures = [u64; 5];
type Key = (String, String, Option<String>);

/// Everything that happened.
#[derive(Default)]
struct Naive {
    now: u64,
    open: BTreeMap<ReporterId, String>,
    reports: Vec<(ReporterId, String, u64, Vec<ReportPart>)>,
}

impl Naive {
    /// The newest report of a stream that is open.
    fn is_newest(&self, at: usize) -> bool {
        let (id, ..) = self.reports[at];
        let later = self.reports[at + 1..].iter();
        self.open.contains_key(&id) && later.clone().all(|(other, ..)| *other != id)
    }

    fn parts(&self) -> impl Iterator<Item = (usize, Key, &ReportPart)> {
        let reports = self.reports.iter().enumerate();
        reports.flat_map(|(at, (_, client, _, parts))| {
            parts.iter().map(move |part| {
                let backend = Some(format!("eu/{}", ZONES[part.zone]));
                let cluster = CLUSTERS[part.cluster].to_owned();
                (at, (cluster, client.clone(), backend), part)
            })
        })
    }

    fn figures(&self) -> BTreeMap<Key, Figures> {
        let mut rows: BTreeMap<Key, Figures> = BTreeMap::new();
        for (at, key, part) in self.parts() {
            if part.counts != [0; 4] {
                let row = rows.entry(key.clone()).or_default();
                row[0] += part.counts[0];
                row[1] += part.counts[1];
                row[2] += part.counts[2];
                if self.is_newest(at) {
                    row[3] += part.counts[3];
                }
            }
            let dropped = part.all_drops();
            if dropped > 0 {
                rows.entry((key.0, key.1, None)).or_default()[4] += dropped;
            }
        }
        rows
    }

    fn categories(&self) -> BTreeMap<(String, String), u64> {
        let mut sums = BTreeMap::new();
        for (_, key, part) in self.parts() {
            // A part without any drop says nothing.
            for (category, dropped) in part.categories.iter().filter(|_| part.all_drops() > 0) {
                let category = format!("c{category}");
                *sums.entry((key.0.clone(), category)).or_default() += dropped;
            }
        }
        sums
    }

    /// The calls per second of all rows together.
    fn rate(&self) -> f64 {
        let fresh = self.parts().filter(|(at, _, part)| {
            let (_, _, time, _) = self.reports[*at];
            let age = self.now - time;
            self.is_newest(*at) && age <= 3 * part.seconds.unsigned_abs()
        });
        fresh
            .map(|(_, _, part)| part.counts[0] as f64 / part.seconds as f64)
            .sum()
    }
}

impl ReportPart {
    fn all_drops(&self) -> u64 {
        let named: u64 = self.categories.iter().map(|(_, dropped)| dropped).sum();
        self.dropped.max(named)
    }

    fn stats(&self) -> ClusterStats {
        let categories = self
            .categories
            .iter()
            .map(|(number, dropped)| DroppedRequests {
                category: format!("c{number}"),
                dropped_count: *dropped,
            });
        ClusterStats {
            cluster_name: CLUSTERS[self.cluster].to_owned(),
            upstream_locality_stats: vec![locality(ZONES[self.zone], self.counts)],
            total_dropped_requests: self.dropped,
            dropped_requests: categories.collect(),
            load_report_interval: Some(protobuf::Duration {
                seconds: self.seconds,
                nanos: 0,
            }),
            ..ClusterStats::default()
        }
    }
}

fn part() -> impl Strategy<Value = ReportPart> {
    let counts = prop::array::uniform4(0..5_u64);
    let categories = prop::collection::vec((0..2_usize, 0..5_u64), 0..3);
    let numbers = (0..CLUSTERS.len(), 0..ZONES.len(), 0..20_u64);
    (numbers, counts, categories).prop_map(|((cluster, zone, dropped), counts, categories)| {
        ReportPart {
            cluster,
            zone,
            counts,
            dropped,
            categories,
            // The store keeps one interval for the parts of a row, so it must be one per cluster.
            seconds: [1, 5, 10][cluster],
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let report = (0..8_usize, prop::collection::vec(part(), 0..6));
    prop_oneof![
        2 => (0..ZONES.len()).prop_map(|zone| Step::Open { zone }),
        1 => (0..8_usize).prop_map(|which| Step::Close { which }),
        6 => report.prop_map(|(which, parts)| Step::Report { which, parts }),
        2 => (1..40_u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

fn apply(step: Step, rig: &mut Rig, naive: &mut Naive) {
    let nth = |which: usize, open: &BTreeMap<ReporterId, String>| {
        let count = open.len().max(1);
        open.keys().nth(which % count).copied()
    };
    match step {
        Step::Open { zone } => {
            let id = rig.open(ZONES[zone]);
            naive.open.insert(id, ZONES[zone].to_owned());
        }
        Step::Close { which } => {
            if let Some(id) = nth(which, &naive.open) {
                rig.store.close(id);
                naive.open.remove(&id);
            }
        }
        Step::Report { which, parts } => {
            if let Some(id) = nth(which, &naive.open) {
                rig.report(id, parts.iter().map(ReportPart::stats).collect());
                let client = naive.open[&id].clone();
                naive.reports.push((id, client, naive.now, parts));
            }
        }
        Step::Wait { seconds } => {
            rig.now += Duration::from_secs(seconds);
            naive.now += seconds;
        }
    }
}

proptest! {
    #[test]
    fn the_books_agree_with_naive_ones(steps in prop::collection::vec(step(), 1..60)) {
        let mut rig = Rig::new();
        let mut naive = Naive::default();
        for step in steps {
            apply(step, &mut rig, &mut naive);
            let loads = rig.view();
            let (known, counted) = rig.store.entries();
            prop_assert_eq!(known, counted);
            let mut figures = BTreeMap::new();
            let mut categories: BTreeMap<_, u64> = BTreeMap::new();
            for row in &loads.rows {
                let key = (
                    row.cluster.clone(),
                    row.client_locality.clone(),
                    row.backend_locality.clone(),
                );
                let [issued, succeeded, errors, open] = counts(row);
                figures.insert(key, [issued, succeeded, errors, open, row.dropped]);
                for (category, dropped) in &row.dropped_by_category {
                    let key = (row.cluster.clone(), category.clone());
                    *categories.entry(key).or_default() += dropped;
                }
            }
            prop_assert_eq!(figures, naive.figures());
            prop_assert_eq!(categories, naive.categories());
            let rate: f64 = loads.rows.iter().map(|row| row.calls_per_second).sum();
            prop_assert!((rate - naive.rate()).abs() < 1e-6, "{} {}", rate, naive.rate());
            let streams: BTreeSet<_> = loads.reporters.iter().map(|of| of.stream).collect();
            prop_assert!(streams.iter().eq(naive.open.keys()));
        }
    }
}
