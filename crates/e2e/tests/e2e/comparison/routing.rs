//! Routes and splits: both clients send the same calls to the same clusters (gRFC A28, A63).
//!
//! The tables are random, because conditions have too many combinations to write them down.

use std::collections::BTreeMap;

use crowfly_e2e::comparison::{Both, Call, Outcome};
use fastrand::Rng;
use tonic::Code;

use super::rig;
use super::tables::{CLUSTERS, Table};

/// The seed of all tables and calls. Another seed would do, if its calls take routes of each kind.
const SEED: u64 = 1;
/// The tables whose outcomes are certain, and the calls to each.
const CERTAIN: usize = 40;
const CALLS: usize = 100;
/// The tables with chance in them, the calls to each, and how often each call is made.
const RANDOM: usize = 10;
const RANDOM_CALLS: usize = 4;
const TIMES: usize = 400;

/// S5-01, S5-02, S5-03, S5-04, S5-09: 50 random route tables. The 4,000 calls to those without chance have the
/// same outcome with both clients. Calls to the others are split alike.
#[tokio::test(flavor = "multi_thread")]
async fn both_clients_take_the_same_routes() {
    let mut rng = Rng::with_seed(SEED);
    let certain: Vec<Table> = (0..CERTAIN)
        .map(|number| Table::certain(&mut rng, number, CALLS))
        .collect();
    let random: Vec<Table> = (CERTAIN..CERTAIN + RANDOM)
        .map(|number| Table::random(&mut rng, number, RANDOM_CALLS))
        .collect();
    let resources = certain.iter().chain(&random).flat_map(Table::resources);
    let Some(mut rig) = rig(&CLUSTERS, resources.collect()) else {
        return;
    };

    let calls: Vec<Call> = certain
        .iter()
        .flat_map(|table| table.calls.clone())
        .collect();
    let outcomes = rig.call(&calls).await;
    assert_same(&certain, &outcomes);
    assert_each_kind_counts(&certain, &outcomes.c_core);

    let once = random.iter().flat_map(|table| &table.calls);
    let calls: Vec<Call> = once.flat_map(|call| vec![call.clone(); TIMES]).collect();
    let outcomes = rig.call(&calls).await;
    assert_split_alike(&calls, &outcomes);
}

/// Fails with each call whose outcomes differ, and its routes.
fn assert_same(tables: &[Table], outcomes: &Both<Vec<Outcome>>) {
    let calls = tables
        .iter()
        .flat_map(|table| table.calls.iter().map(move |call| (table, call)));
    let outcomes = outcomes.ours.iter().zip(&outcomes.c_core);
    let differing = calls
        .zip(outcomes)
        .filter(|(_, (ours, c_core))| (ours.code, &ours.backend) != (c_core.code, &c_core.backend));
    let told: Vec<String> = differing
        .map(|((table, call), (ours, c_core))| {
            format!(
                "{call:?}\nours: {ours:?}\nC-core: {c_core:?}\n{:#}",
                table.routes
            )
        })
        .collect();
    let first = told
        .iter()
        .take(3)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n\n");
    assert!(told.is_empty(), "{} calls differ:\n{first}", told.len());
}

/// Fails unless calls took routes with each kind of condition, and some took none. A comparison of
/// calls that all take the same way shows nothing.
fn assert_each_kind_counts(tables: &[Table], outcomes: &[Outcome]) {
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    let kinds = tables.iter().flat_map(|table| table.kinds.iter().flatten());
    for kind in kinds {
        taken.entry(kind).or_default();
    }
    let mut refused = 0;
    for (table, outcomes) in tables.iter().zip(outcomes.chunks(CALLS)) {
        for outcome in outcomes {
            assert!(had_routes(outcome), "{outcome:?}");
            match CLUSTERS.iter().position(|name| *name == outcome.backend) {
                Some(cluster) => {
                    for kind in &table.kinds[cluster] {
                        *taken.entry(kind).or_default() += 1;
                    }
                }
                None => refused += 1,
            }
        }
    }
    assert_eq!(taken.remove("runtime_fraction 0"), Some(0));
    assert!(taken.values().all(|count| *count > 3), "{taken:#?}");
    let calls = outcomes.len();
    assert!(
        (calls / 20..calls / 2).contains(&refused),
        "{refused} of {calls} calls took no route"
    );
}

/// Fails with each call whose shares among the backends differ by more than chance explains.
fn assert_split_alike(calls: &[Call], outcomes: &Both<Vec<Outcome>>) {
    let mut wrong = Vec::new();
    let mut splits = 0;
    let ours = outcomes.ours.chunks(TIMES);
    let rounds = ours.zip(outcomes.c_core.chunks(TIMES));
    for (call, (ours, c_core)) in calls.iter().step_by(TIMES).zip(rounds) {
        let mut counts: BTreeMap<(i32, &str), [usize; 2]> = BTreeMap::new();
        for (client, outcomes) in [ours, c_core].into_iter().enumerate() {
            for outcome in outcomes {
                let key = (i32::from(outcome.code), &*outcome.backend);
                counts.entry(key).or_default()[client] += 1;
            }
        }
        splits += usize::from(counts.len() > 1);
        if !counts
            .values()
            .all(|[ours, c_core]| is_by_chance(*ours, *c_core))
        {
            wrong.push(format!("{call:?}: ours and C-core {counts:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(splits > 15, "only {splits} calls were split");
}

/// True if two counts of [`TIMES`] each may have the same share: within 5.5 standard deviations, which chance
/// leaves once in 26 million cases.
fn is_by_chance(one: usize, other: usize) -> bool {
    let times = TIMES as f64;
    let share = (one + other) as f64 / (2.0 * times);
    let deviation = (2.0 * share * (1.0 - share) * times).sqrt();
    one.abs_diff(other) as f64 <= 5.5 * deviation
}

/// True if C-core had routes for the call: it took one, or none of them was for the call.
fn had_routes(outcome: &Outcome) -> bool {
    let refusals = [
        "No matching route found in xDS route config",
        "Matching route has inappropriate action",
    ];
    match outcome.code {
        Code::Ok => true,
        Code::Unavailable => refusals.contains(&&*outcome.text),
        _ => false,
    }
}
