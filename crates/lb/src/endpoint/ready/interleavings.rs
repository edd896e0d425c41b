//! Tests of the counters of an endpoint under loom, because threads change and read them without a
//! lock.

use loom::thread;

use super::*;
use crate::slots::Slots;

fn connected(ledger: &mut Ledger<()>) -> Arc<ReadyEndpoint<()>> {
    ledger.open(Connected {
        id: EndpointId(Slots::new().insert(())),
        locality: LocalityId::default(),
        addresses: &(Arc::new([]) as Arc<[SocketAddr]>),
        counters: None,
        transport: (),
        address: SocketAddr::from(([127, 0, 0, 1], 80)),
    })
}

/// A reader of the counters sees a call that is just ending as open or as ended. It never sees
/// "minus one" calls.
#[test]
fn calls_in_flight_are_never_more_than_were_made() {
    loom::model(|| {
        let mut ledger = Ledger::new();
        let endpoint = connected(&mut ledger);
        let call = {
            let endpoint = Arc::clone(&endpoint);
            thread::spawn(move || {
                endpoint.start_call();
                endpoint.finish_call(CallOutcome::OK);
            })
        };
        assert!(ledger.in_flight() <= 1);
        call.join().unwrap();
        assert_eq!(ledger.in_flight(), 0);
    });
}

/// The sum is read while the last call lets go of its connection.
#[test]
fn picks_of_a_connection_that_ends_are_not_counted_twice() {
    loom::model(|| {
        let mut ledger = Ledger::new();
        let endpoint = connected(&mut ledger);
        endpoint.start_call();
        let call = thread::spawn(move || {
            endpoint.finish_call(CallOutcome::OK);
            drop(endpoint);
        });
        assert!(ledger.picks() <= 1);
        call.join().unwrap();
        assert_eq!(ledger.picks(), 1);
    });
}

/// A50: the ended calls are looked at while the last owner lets go of the connection. They may be counted
/// late, but neither twice nor never.
#[test]
fn ended_calls_of_a_connection_that_ends_are_counted_once() {
    loom::model(|| {
        let mut ledger = Ledger::new();
        let endpoint = connected(&mut ledger);
        for outcome in [CallOutcome::OK, CallOutcome::ConnectionLost] {
            endpoint.start_call();
            endpoint.finish_call(outcome);
        }
        let owner = thread::spawn(move || drop(endpoint));
        let Settled { succeeded, failed } = ledger.settled();
        assert!(succeeded <= 1 && failed <= 1);
        owner.join().unwrap();
        let both = Settled {
            succeeded: 1,
            failed: 1,
        };
        assert_eq!(ledger.settled(), both);
    });
}
