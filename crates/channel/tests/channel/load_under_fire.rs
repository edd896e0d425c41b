//! Load reports are exact under fire: deadlines, cancelled calls, drops, retries, backends that die, and LRS streams
//! that break.
//!
//! The truth does not come from the counters under test. A policy of the test hears every pick and
//! every outcome, and the callers see which calls were dropped. CI makes 50,000 calls. This makes a
//! million:
//!
//! ```sh
//! CROWFLY_FIRE_CALLS=1000000 cargo test --release -p crowfly --test channel load_under_fire -- --nocapture
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crowfly::Channel;
use crowfly::LoadReportStatus;
use crowfly::policy::{
    CallContext, CallOutcome, CustomPolicy, Endpoint, PolicyRegistry, ReadySet, Selection, Selector,
};
use crowfly_testkit::builders::{Resources, custom_policy, endpoints, wrr_locality};
use crowfly_testkit::{LoadRow, LoadSums, LrsServer, LrsStream, ResourceServer};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use serde_json::json;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tonic::{Code, Request, Status};

use crate::backend::Backend;
use crate::limits::limited;
use crate::support::{PATH, payments, policy, retrying_routes, send};

const CHANNELS: usize = 8;
const CALLERS_EACH: usize = 12;
const BREAKS: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(1);

/// S13-02, S13-06: streams that break between two reports cost nothing. The sums are those of the client to the last
/// call, and no call is in progress in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_broken_between_reports_lose_nothing() {
    let fire = Fire::start("fire-between").await;
    let Account {
        sums,
        lost,
        in_flight,
        truth,
        status,
    } = fire.run(Break::Between).await;
    assert_eq!((lost.reports, in_flight), (0, InFlight::default()));
    assert_eq!(sums.total(), truth.row(), "{truth:?}");
    assert_eq!(drops(&sums, "some"), truth.dropped());
    assert_eq!(drops(&sums, ""), truth.over_limit());
    assert!(status.totals.streams > u64::from(BREAKS), "{status:?}");
    assert_eq!(status.totals.calls_given_up, 0);
}

/// S13-06: streams that break during reports lose those reports and nothing else, and repeat
/// nothing. Three kinds of reports add up to the truth: those that the server counts, those that it
/// did not read, and those that never arrived. So the sums are never above the truth, and short by
/// no more than the reports in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_broken_during_reports_lose_only_the_reports_in_flight() {
    let fire = Fire::start("fire-during").await;
    let Account {
        sums,
        lost,
        in_flight,
        truth,
        status,
    } = fire.run(Break::During).await;
    let (got, known_lost, real) = (sums.total(), lost.total(), truth.row());
    let accounted = got.issued + known_lost.issued + in_flight.calls;
    assert_eq!(accounted, real.issued, "{got:?}, {known_lost:?}, {real:?}");
    assert!(lost.reports >= u64::from(BREAKS / 2) && known_lost.issued > 0);
    let short = [
        real.succeeded
            .checked_sub(got.succeeded + known_lost.succeeded),
        real.errors.checked_sub(got.errors + known_lost.errors),
        truth.dropped().checked_sub(all_drops(&sums, &lost, "some")),
        truth.over_limit().checked_sub(all_drops(&sums, &lost, "")),
    ];
    let short = short.map(|short| short.expect("the sums are not above the truth"));
    // A report that never arrived may end calls of earlier ones, so its ends have no limit of their own.
    assert!(in_flight.reports > 0 || short == [0; 4], "{short:?}");
    assert_eq!(got.in_progress, 0);
    // The client may be in doubt about more reports than are lost, and never about fewer.
    let totals = status.totals;
    assert!(totals.reports_in_doubt >= lost.reports + in_flight.reports);
    assert!(totals.calls_in_doubt >= known_lost.issued + in_flight.calls);
}

fn all_drops(sums: &LoadSums, lost: &LoadSums, category: &str) -> u64 {
    drops(sums, category) + drops(lost, category)
}

fn drops(sums: &LoadSums, category: &str) -> u64 {
    let of_category = sums.drops.iter().filter(|((_, name), _)| name == category);
    of_category.map(|(_, count)| count).sum()
}

/// The number of calls, over all channels.
fn calls() -> u64 {
    let asked = std::env::var("CROWFLY_FIRE_CALLS").ok();
    asked.map_or(50_000, |calls| calls.parse().expect("a number of calls"))
}

#[derive(Clone, Copy, PartialEq)]
enum Break {
    /// After a report was counted.
    Between,
    /// A report is thrown away, or the connection is cut about when the next report is due.
    During,
}

/// The reports of a client and the truth about its calls.
struct Account {
    /// The reports that the server counts.
    sums: LoadSums,
    /// The reports that arrived and that the server does not count.
    lost: LoadSums,
    in_flight: InFlight,
    truth: Arc<Truth>,
    status: LoadReportStatus,
}

/// The reports that a connection took and that never arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct InFlight {
    reports: u64,
    calls: u64,
}

/// Everything that is on fire.
struct Fire {
    server: ResourceServer,
    lrs: LrsServer,
    backends: Vec<Backend>,
    channels: Vec<Channel>,
    truth: Arc<Truth>,
}

impl Fire {
    /// Calls are counted together in all of the process, so the name of the cluster is a test's own.
    async fn start(cluster: &str) -> Self {
        let flaky = |every: u64| {
            let calls = AtomicU64::new(0);
            move |_| (calls.fetch_add(1, SeqCst) % every == every - 1).then_some(14)
        };
        let backends = vec![
            Backend::start("a").await,
            Backend::scripted("b", flaky(7)).await,
            Backend::scripted("c", flaky(23)).await,
        ];
        let (server, lrs) = ResourceServer::start_with_lrs(&resources(cluster, &backends));
        let truth = Arc::<Truth>::default();
        let hears = Hears(Arc::clone(&truth));
        let read = move |_: &serde_json::Value| Ok::<_, Infallible>(hears.clone());
        let registry = PolicyRegistry::new().with("test.Hears", read);
        let channel = |_| {
            let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
            builder.policies(&registry).build().unwrap()
        };
        Self {
            channels: (0..CHANNELS).map(channel).collect(),
            server,
            lrs,
            backends,
            truth,
        }
    }

    /// Makes all calls while streams break, and then reads the rest.
    async fn run(self, how: Break) -> Account {
        let started = Instant::now();
        let over = Arc::new(AtomicBool::new(false));
        let reader = Reader {
            server: self.server,
            lrs: self.lrs,
            how,
            over: Arc::clone(&over),
            sums: LoadSums::default(),
            lost: LoadSums::default(),
            in_flight: InFlight::default(),
            broken: 0,
        };
        let reader = tokio::spawn(reader.run());
        let killer = tokio::spawn(kill(self.backends, Arc::clone(&over)));
        let todo = Arc::new(AtomicU64::new(calls()));
        let callers: Vec<_> = (0..CHANNELS * CALLERS_EACH)
            .map(|n| {
                let caller = Caller {
                    channel: self.channels[n % CHANNELS].clone(),
                    truth: Arc::clone(&self.truth),
                    random: fastrand::Rng::with_seed(n as u64),
                };
                tokio::spawn(caller.run(Arc::clone(&todo), Arc::clone(&over)))
            })
            .collect();
        // Calls go on until every break has come, however soon they are all made.
        let reader = reader.await.unwrap();
        for caller in callers {
            caller.await.unwrap();
        }
        let _backends = killer.await.unwrap();
        let status = status_of(&reader.server);
        drop(self.channels);
        let reader = reader.rest().await;
        let account = Account {
            sums: reader.sums,
            lost: reader.lost,
            in_flight: reader.in_flight,
            truth: self.truth,
            status,
        };
        account.print(started.elapsed());
        account
    }
}

impl Account {
    fn print(&self, time: Duration) {
        println!(
            "{} attempts, {} drops, {} reports; {} reports with {} attempts not counted; {:?}; {} s: {:?}",
            self.truth.picks.load(SeqCst),
            self.truth.dropped() + self.truth.over_limit(),
            self.sums.reports,
            self.lost.reports,
            self.lost.total().issued,
            self.in_flight,
            time.as_secs(),
            self.status.totals,
        );
    }
}

/// The client's own account of its reports to this server.
fn status_of(server: &ResourceServer) -> LoadReportStatus {
    let address = server.address().to_string();
    crowfly::load_reports()
        .into_iter()
        .find(|status| *status.server == *address)
        .expect("the client of this server")
}

/// Two localities, retries, a category that drops, and a limit that is reached.
fn resources(name: &str, backends: &[Backend]) -> Resources {
    let hears = wrr_locality([custom_policy("test.Hears", &json!({}))]);
    let cluster = limited(name, 80).load_reports([]).policies([hears]);
    let routes = retrying_routes(policy(3, "unavailable")).edit(|config| {
        use envoy_types::pb::envoy::config::route::v3::route::Action;
        use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
        let action = config.virtual_hosts[0].routes[0].action.as_mut();
        if let Some(Action::Route(action)) = action {
            action.cluster_specifier = Some(ClusterSpecifier::Cluster(name.to_owned()));
        }
    });
    let places = endpoints("payments-eds")
        .locality("eu/a", 1, [backends[0].address])
        .locality(
            "eu/b",
            2,
            backends[1..].iter().map(|backend| backend.address),
        )
        .drop("some", 20_000);
    payments(&[]).with(cluster).with(routes).with(places)
}

/// Cuts the connections of backends, or has them refuse calls, until it is over.
async fn kill(mut backends: Vec<Backend>, over: Arc<AtomicBool>) -> Vec<Backend> {
    let mut random = fastrand::Rng::with_seed(99);
    while !over.load(SeqCst) {
        let backend = &mut backends[random.usize(..3)];
        match random.u8(..4) {
            0 => backend.cut(),
            1 => backend.go_away(),
            2 => backend.refuse(20),
            _ => {
                backend.stop().await;
                sleep(Duration::from_millis(20)).await;
                backend.restart();
            }
        }
        sleep(Duration::from_millis(random.u64(200..800))).await;
    }
    backends
}

struct Caller {
    channel: Channel,
    truth: Arc<Truth>,
    random: fastrand::Rng,
}

impl Caller {
    async fn run(mut self, todo: Arc<AtomicU64>, over: Arc<AtomicBool>) {
        loop {
            let left = todo.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            if left.is_err() {
                if over.load(SeqCst) {
                    return;
                }
                // All calls are made; a few more go on until the last stream has broken.
                sleep(Duration::from_millis(50)).await;
            }
            if self.call().await {
                // A call over the limit ends at once, so that callers would call in a tight loop. It is not
                // one of the calls to be made.
                todo.fetch_add(u64::from(left.is_ok()), SeqCst);
                sleep(Duration::from_millis(2)).await;
            }
            yield_now().await;
        }
    }

    /// Makes one call; true if it was over the limit.
    async fn call(&mut self) -> bool {
        let mut request = Request::new("hello".to_owned());
        let kind = self.random.u8(..10);
        // No call outlives an outage of all backends.
        request.set_timeout(match kind {
            0 => Duration::from_micros(self.random.u64(100..3000)),
            _ => Duration::from_secs(5),
        });
        let call = send(&self.channel, PATH, request);
        let outcome = match kind {
            1 => {
                let patience = Duration::from_micros(self.random.u64(..2000));
                match timeout(patience, call).await {
                    Ok(outcome) => outcome,
                    // Given up. It may have been dropped, but then it would have ended at once.
                    Err(_) => return false,
                }
            }
            _ => call.await,
        };
        self.truth.ended(&outcome)
    }
}

/// The client's own account.
#[derive(Debug, Default)]
struct Truth {
    picks: AtomicU64,
    succeeded: AtomicU64,
    errors: AtomicU64,
    /// Calls that were answered with OK.
    answered: AtomicU64,
    dropped: AtomicU64,
    over_limit: AtomicU64,
}

impl Truth {
    /// Notes the end of a call; true if it was over the limit.
    fn ended(&self, outcome: &Result<String, Status>) -> bool {
        let counter = match outcome {
            Ok(_) => &self.answered,
            Err(status) if status.code() != Code::Unavailable => return false,
            Err(status) if status.message().contains("category some") => &self.dropped,
            Err(status) if status.message().contains("circuit breaker") => &self.over_limit,
            Err(_) => return false,
        };
        counter.fetch_add(1, SeqCst);
        std::ptr::eq(counter, &self.over_limit)
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(SeqCst)
    }

    fn over_limit(&self) -> u64 {
        self.over_limit.load(SeqCst)
    }

    /// All calls have ended, so none is in progress.
    fn row(&self) -> LoadRow {
        let row = LoadRow {
            issued: self.picks.load(SeqCst),
            succeeded: self.succeeded.load(SeqCst),
            errors: self.errors.load(SeqCst),
            in_progress: 0,
        };
        assert_eq!(row.issued, row.succeeded + row.errors, "{self:?}");
        // Each answered call has one attempt that succeeded; a caller may have given up just then.
        assert!(row.succeeded >= self.answered.load(SeqCst), "{self:?}");
        assert!(row.errors > 0 && self.dropped() > 0, "{self:?}");
        // Most calls are sent: the others are a share of 2 % and those over the limit.
        assert!(row.issued >= calls() * 8 / 10, "{self:?}");
        row
    }
}

/// Sends calls in turn, and hears of their ends.
#[derive(Clone, Debug)]
struct Hears(Arc<Truth>);

impl CustomPolicy for Hears {
    fn name(&self) -> &str {
        "test.Hears"
    }

    fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> {
        Arc::new(self.clone())
    }
}

impl Selector for Hears {
    fn pick<'a>(&self, cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        let count = ready.len().max(1) as u64;
        let Some(endpoint) = ready.get((cx.random() % count) as usize) else {
            return Selection::Queue;
        };
        self.0.picks.fetch_add(1, SeqCst);
        Selection::Send(endpoint)
    }

    fn finished(&self, _: usize, outcome: CallOutcome) {
        let counter = match outcome {
            CallOutcome::OK => &self.0.succeeded,
            _ => &self.0.errors,
        };
        counter.fetch_add(1, SeqCst);
    }
}

/// The server's side: it reads reports and breaks streams.
struct Reader {
    server: ResourceServer,
    lrs: LrsServer,
    how: Break,
    over: Arc<AtomicBool>,
    sums: LoadSums,
    lost: LoadSums,
    in_flight: InFlight,
    broken: u32,
}

impl Reader {
    /// Reads reports, until all streams that are to break have broken.
    async fn run(mut self) -> LastReader {
        let mut stream = self.lrs.accept_and_ask(INTERVAL).await;
        while self.broken < BREAKS {
            if let Some(report) = stream.next().await {
                self.broken += 1;
                self.break_stream(stream, &report).await;
            }
            stream = self.lrs.accept_and_ask(INTERVAL).await;
            self.note_in_flight();
        }
        self.over.store(true, SeqCst);
        LastReader {
            stream,
            server: self.server,
            _lrs: self.lrs,
            sums: self.sums,
            lost: self.lost,
            in_flight: self.in_flight,
        }
    }

    async fn break_stream(&mut self, mut stream: LrsStream, report: &LoadStatsRequest) {
        match self.how {
            Break::Between => {
                self.sums.add(report);
                match self.broken % 2 {
                    0 => drop(stream),
                    _ => stream.fail(Status::unavailable("restart")),
                }
            }
            Break::During if self.broken.is_multiple_of(2) => {
                self.lost.add(report);
                stream.fail(Status::internal("no memory"));
            }
            Break::During => {
                self.sums.add(report);
                // The next report is not due yet, or on its way, or has come and is not read.
                let jitter = Duration::from_millis(u64::from(self.broken) * 30);
                sleep(INTERVAL * 9 / 10 + jitter).await;
                self.server.stop().await;
                while let Some(unread) = stream.next().await {
                    self.lost.add(&unread);
                }
                self.server.restart();
            }
        }
    }

    /// Compares the reports that connections took with those that arrived, once the next stream is there.
    fn note_in_flight(&mut self) {
        let totals = status_of(&self.server).totals;
        let arrived = self.sums.reports + self.lost.reports;
        let issued = self.sums.total().issued + self.lost.total().issued;
        let in_flight = InFlight {
            reports: totals.reports - arrived,
            calls: totals.calls - issued,
        };
        let more = in_flight.reports - self.in_flight.reports;
        assert!(more <= 1, "{more} reports of one stream never arrived");
        if more == 0 {
            assert_eq!(in_flight.calls, self.in_flight.calls, "{totals:?}");
        }
        self.in_flight = in_flight;
    }
}

/// Reads the reports that come after the last break.
struct LastReader {
    stream: LrsStream,
    server: ResourceServer,
    _lrs: LrsServer,
    sums: LoadSums,
    lost: LoadSums,
    in_flight: InFlight,
}

impl LastReader {
    /// Reads to the end, which is the client's own.
    async fn rest(mut self) -> Self {
        let reading = async {
            while let Some(report) = self.stream.next().await {
                self.sums.add(&report);
            }
        };
        let read = timeout(Duration::from_secs(60), reading).await;
        read.expect("the client ends the stream with its last report");
        self
    }
}
