//! Tests of streams of reports: how they begin, break and end.
//!
//! A report is sent at most once, because a server would count the calls of a second one again.

use std::time::Duration;

use crowfly_xds::load_report::{LoadInput, MIN_INTERVAL, StreamEnd};

use crate::log::Log;
use crate::sim::{INTERVAL, Sim, all};

/// S13-06: a broken stream is followed by another, which begins anew. Counts that no connection has taken are in
/// its first report, with the time that they are from; a report that was taken is not repeated.
#[test]
fn a_broken_stream_loses_and_repeats_nothing_between_reports() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.count("a", 5, 2, 1);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 5 2 1 2"]);
    sim.count("a", 1, 1, 0);
    sim.advance(Duration::from_secs(6));
    sim.input(LoadInput::Closed(StreamEnd::told("restart")));
    assert_eq!(sim.opened, 2, "at once, because the server had answered");
    sim.input(LoadInput::Opened);
    assert!(sim.sent.remove(0).node.is_some(), "a fresh first request");
    sim.count("a", 2, 0, 3);
    sim.answer(&all(INTERVAL));
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 3 1 3 1"]);
    assert_eq!(sim.interval_of("a"), Duration::from_secs(16));
    let totals = sim.reporter.totals();
    assert_eq!((totals.reports, totals.calls), (2, 8));
    assert_eq!((totals.reports_in_doubt, totals.calls_in_doubt), (0, 0));
}

/// S13-06: a report that waited for the connection when the stream broke goes into the next one; one that the
/// connection took just before does not, and is counted.
#[test]
fn a_report_is_sent_at_most_once() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.takes_requests = false;
    sim.count("a", 5, 2, 1);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 5 2 1 2"]);
    sim.count("a", 1, 0, 0);
    sim.advance(5 * INTERVAL);
    assert!(
        sim.sent.is_empty(),
        "no second report while one is under way"
    );
    sim.input(LoadInput::Closed(StreamEnd::told("reset")));
    assert_eq!(sim.reporter.totals().reports_in_doubt, 0);

    sim.takes_requests = true;
    sim.reopen(&all(INTERVAL));
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 6 2 1 3"], "all of it");
    assert_eq!(sim.interval_of("a"), 7 * INTERVAL);

    sim.count("a", 1, 0, 0);
    sim.input(LoadInput::Closed(StreamEnd::told("reset")));
    let totals = sim.reporter.totals();
    assert_eq!((totals.reports_in_doubt, totals.calls_in_doubt), (1, 6));
    sim.reopen(&all(INTERVAL));
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 1 0 0 4"], "not repeated");
}

/// N-71, N-73: a source stores what it has reported before each report goes out, takes that back if no connection
/// takes the report, and holds the report back if it cannot store.
#[test]
fn a_source_knows_the_way_of_each_report() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    let told = |sim: &mut Sim| std::mem::take(&mut sim.source.told);
    sim.count("a", 1, 0, 0);
    sim.takes_requests = false;
    sim.advance(INTERVAL);
    assert_eq!(told(&mut sim), ["sending"]);
    sim.takes_requests = true;
    sim.take_request();
    assert_eq!(told(&mut sim), ["sent"]);
    assert_eq!(sim.rows(), ["a: 1 0 0 1"]);

    sim.count("a", 2, 0, 0);
    sim.takes_requests = false;
    sim.advance(INTERVAL);
    sim.sent.clear();
    sim.input(LoadInput::Closed(StreamEnd::told("reset")));
    assert_eq!(told(&mut sim), ["sending", "unsent"]);

    sim.takes_requests = true;
    sim.reopen(&all(INTERVAL));
    sim.source.cannot_store = true;
    sim.advance(INTERVAL);
    assert_eq!(told(&mut sim), ["sending"]);
    assert!(sim.sent.is_empty(), "it would be repeated after a restart");
    sim.source.cannot_store = false;
    sim.advance(INTERVAL);
    assert_eq!(told(&mut sim), ["sending", "sent"]);
    assert_eq!(sim.rows(), ["a: 2 0 0 3"], "nothing is lost");
}

/// S13-06: all reports of the time in which nothing came from the server may be lost.
#[test]
fn reports_into_a_silent_connection_are_in_doubt() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    for _ in 0..6 {
        sim.count("a", 1, 1, 0);
        sim.advance(INTERVAL);
    }
    let end = StreamEnd {
        reason: "keep-alive timed out".into(),
        silence: Duration::from_secs(35),
        is_refusal: false,
    };
    sim.input(LoadInput::Closed(end));
    let totals = sim.reporter.totals();
    assert_eq!((totals.reports_in_doubt, totals.calls_in_doubt), (4, 4));
}

/// S13-06: a server that does not answer is asked ever more rarely; an answer makes it quick again.
#[test]
fn failed_streams_are_followed_by_a_backoff() {
    let mut sim = Sim::new();
    sim.use_cluster("a");
    let mut waits = Vec::new();
    for _ in 0..12 {
        sim.input(LoadInput::Closed(StreamEnd::told("refused")));
        waits.push(sim.reporter.next_timeout().unwrap() - sim.now);
        assert_eq!(sim.reporter.trouble().map(|why| &**why), Some("refused"));
        sim.advance(*waits.last().unwrap());
    }
    assert_eq!(sim.opened, 13);
    assert!(waits[0] >= Duration::from_millis(800) && waits[0] <= Duration::from_millis(1200));
    assert!(waits[11] > Duration::from_secs(90), "{waits:?}");

    sim.input(LoadInput::Opened);
    sim.answer(&all(INTERVAL));
    sim.input(LoadInput::Closed(StreamEnd::told("restart")));
    assert_eq!(sim.opened, 14, "at once");
    sim.input(LoadInput::Opened);
    sim.answer(&all(INTERVAL));
    sim.input(LoadInput::Closed(StreamEnd::told("restart")));
    let wait = sim.reporter.next_timeout().unwrap() - sim.now;
    assert!(
        wait <= Duration::from_millis(1200),
        "answered, but in a loop: {wait:?}"
    );
}

/// gRFC A27 with a server that refuses every report: an answer alone does not end the backoff, and the log has one
/// WARN with the status, until the reason changes or reports were taken for a while.
#[test]
fn a_server_that_refuses_reports_is_asked_ever_more_rarely() {
    let log = Log::default();
    let _logged = log.listen();
    let mut sim = Sim::open(&all(MIN_INTERVAL), &["a"]);
    let refuse = |sim: &mut Sim, reason: &str| {
        sim.count("a", 1, 1, 0);
        sim.advance(MIN_INTERVAL);
        sim.input(LoadInput::Closed(StreamEnd::refused(reason)));
        assert_eq!(sim.reporter.trouble().map(|why| &**why), Some(reason));
        let wait = sim.reporter.next_timeout().unwrap() - sim.now;
        sim.reopen(&all(MIN_INTERVAL));
        wait
    };
    let waits: Vec<_> = (0..12).map(|_| refuse(&mut sim, "odd metric")).collect();
    assert!(waits[0] <= Duration::from_millis(1200), "{waits:?}");
    assert!(waits[11] > Duration::from_secs(90), "{waits:?}");
    let said = log.lines("refuses load reports");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("WARN") && said[0].contains("odd metric"));

    refuse(&mut sim, "another");
    assert_eq!(log.lines("refuses load reports").len(), 2);
    for _ in 0..700 {
        sim.count("a", 1, 1, 0);
        sim.advance(MIN_INTERVAL);
    }
    let wait = refuse(&mut sim, "another");
    assert!(wait <= Duration::from_millis(1200), "{wait:?}");
    assert_eq!(log.lines("refuses load reports").len(), 3);
    assert_eq!(sim.reporter.totals().reports_in_doubt, 13 + 5);

    // The answer to the last report counts as well.
    sim.count("a", 1, 1, 0);
    sim.stop_using("a");
    assert_eq!(sim.finished, 1);
    sim.input(LoadInput::Closed(StreamEnd::refused("the last one")));
    assert_eq!(log.lines("refuses the last load report").len(), 1);
}

/// S9-08, S13-08: when no cluster wants reports any more, the rest is reported at once and the stream ends.
#[test]
fn the_last_report_comes_at_once_and_the_stream_ends() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.count("a", 3, 2, 1);
    sim.stop_using("a");
    assert_eq!(sim.rows(), ["a: 3 2 1 0"]);
    assert_eq!((sim.finished, sim.closed), (1, 0));
    sim.input(LoadInput::Closed(StreamEnd::told("OK")));
    assert!(sim.reporter.is_idle());
    assert_eq!(sim.reporter.totals().reports_in_doubt, 0);
    assert_eq!(sim.opened, 1);

    sim.use_cluster("a");
    assert_eq!(sim.opened, 2);
    sim.input(LoadInput::Opened);
    sim.answer(&all(INTERVAL));
    sim.stop_using("a");
    assert_eq!(sim.finished, 2, "nothing to report");
    sim.use_cluster("a");
    assert_eq!(sim.opened, 2, "the old stream ends first");
    sim.advance(Duration::from_secs(5));
    assert_eq!(
        sim.closed, 1,
        "a server that does not end it is not waited for"
    );
    assert_eq!(sim.opened, 3);
}

/// S13-08: without a server that takes the rest, the client gives up after a while and says how many calls.
#[test]
fn the_rest_is_given_up_if_no_server_takes_it() {
    let mut sim = Sim::new();
    sim.use_cluster("a");
    sim.count("a", 3, 3, 0);
    sim.input(LoadInput::Closed(StreamEnd::told("refused")));
    sim.stop_using("a");
    sim.advance(Duration::from_secs(9));
    while sim.reporter.trouble().is_none() {
        sim.input(LoadInput::Closed(StreamEnd::told("refused")));
    }
    assert!(!sim.reporter.is_idle());
    sim.advance(Duration::from_secs(1));
    assert!(sim.reporter.is_idle());
    assert_eq!(sim.reporter.totals().calls_given_up, 3);
}

/// S13-08: a report that no connection takes is given up with its stream, so that it cannot arrive after it was counted
/// as never reported.
#[test]
fn a_report_that_is_given_up_does_not_go_out() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.takes_requests = false;
    sim.count("a", 3, 3, 0);
    sim.stop_using("a");
    assert_eq!(sim.rows(), ["a: 3 3 0 0"]);
    sim.advance(Duration::from_secs(10));
    assert_eq!((sim.finished, sim.closed), (0, 1));
    assert!(sim.reporter.is_idle());
    let totals = sim.reporter.totals();
    assert_eq!((totals.calls_given_up, totals.reports), (3, 0));
}

/// S9-08: an event that changes nothing about the clusters in use does not touch the stream.
#[test]
fn other_changes_leave_the_stream_alone() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.use_cluster("b");
    sim.stop_using("b");
    sim.input(LoadInput::Changed);
    assert_eq!((sim.opened, sim.finished, sim.closed), (1, 0, 0));
}
