//! Tests of the cookie of a session (gRFC A55, A60): the calls that it is for, how it is read, and
//! how it is set. A cookie comes from outside and may hold anything, so the work for it is bounded.

use std::{net::SocketAddr, time::Duration};

use crowfly_model::grpc::filter::{SessionCookie, SessionHost};
use proptest::prelude::*;

fn cookie(path: &str) -> SessionCookie {
    SessionCookie {
        name: "session".to_owned(),
        path: path.to_owned(),
        ttl: Duration::ZERO,
    }
}

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The host that these `cookie` headers name.
fn host(headers: &[&str]) -> SessionHost {
    cookie("").host(headers.iter().map(|header| header.as_bytes()))
}

/// The value of a cookie that is set, as a caller sends it back.
fn sent_back(set: &str) -> String {
    set.split(';').next().unwrap().to_owned()
}

/// S12-12: a cookie is for the calls under its path, which ends at a slash (RFC 6265, section 5.1.4).
#[test]
fn a_path_is_that_of_rfc_6265() {
    let cases = [
        ("", "/shop.Cart/Add", true),
        ("/", "/shop.Cart/Add", true),
        ("/shop.Cart", "/shop.Cart/Add", true),
        ("/shop.Cart/", "/shop.Cart/Add", true),
        ("/shop.Cart/Add", "/shop.Cart/Add", true),
        ("/shop.Cart/Ad", "/shop.Cart/Add", false),
        ("/shop.Carts", "/shop.Cart/Add", false),
        ("/shop.Cart/Add/", "/shop.Cart/Add", false),
        ("/Shop.cart", "/shop.Cart/Add", false),
        ("shop.Cart", "/shop.Cart/Add", false),
    ];
    for (configured, path, expected) in cases {
        assert_eq!(
            cookie(configured).applies_to(path),
            expected,
            "{configured} {path}"
        );
    }
}

/// S12-01, S12-11: a cookie that was set names all addresses of the host, in their order, and its cluster.
#[test]
fn a_cookie_is_read_as_it_was_set() {
    let hosts = [
        &["10.0.0.1:80"][..],
        &["[2001:db8::1]:443", "10.0.0.1:80", "[::ffff:10.0.0.2]:1"],
        &[],
    ];
    for host_of_session in hosts {
        let host_of_session = addresses(host_of_session);
        let set = cookie("").set_cookie(host_of_session.iter().copied(), "shop;blue,green");
        let read = host(&[&sent_back(&set)]);
        assert_eq!(read.addresses(), host_of_session);
        assert_eq!(read.cluster(), "shop;blue,green");
        assert!(read.is(host_of_session.iter().copied(), "shop;blue,green"));
    }
}

/// S12-13: `set-cookie` has the attributes of gRPC C-core, in its order. A path or a time to live that is not configured
/// is left out.
#[test]
fn attributes_follow_the_configuration() {
    let host = addresses(&["127.0.0.1:443"]);
    let set = |cookie: SessionCookie| cookie.set_cookie(host.iter().copied(), "c");
    let value = "session=MTI3LjAuMC4xOjQ0Mztj; HttpOnly";
    assert_eq!(set(cookie("")), value);
    assert_eq!(set(cookie("/shop")), format!("{value}; Path=/shop"));
    let whole = SessionCookie {
        ttl: Duration::from_millis(42_900),
        ..cookie("/shop")
    };
    assert_eq!(set(whole), format!("{value}; Path=/shop; Max-Age=42"));
}

/// gRFC A55: the first cookie of the name counts, in the first header that has one.
#[test]
fn the_first_cookie_of_the_name_counts() {
    // 10.0.0.1:80;c and 10.0.0.2:80;c
    let (one, two) = ("MTAuMC4wLjE6ODA7Yw==", "MTAuMC4wLjI6ODA7Yw==");
    let first = host(&[&format!("session={one}")]);
    assert_eq!(first.addresses(), addresses(&["10.0.0.1:80"]));
    let same = [
        vec![format!("session={one}; session={two}")],
        vec![format!("a=b; session={one}; session={two}")],
        vec![format!("a=b;session={one};c=d")],
        vec![
            format!("a=b"),
            format!("session={one}"),
            format!("session={two}"),
        ],
        // A name that begins or ends with the cookie's is another one.
        vec![format!(
            "sessions={two}; my-session={two}; session ={two}; session={one}"
        )],
        // Without padding.
        vec![format!("session={}", one.trim_end_matches('='))],
    ];
    for headers in same {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        assert_eq!(host(&headers), first, "{headers:?}");
    }
    // One that cannot be read is not replaced by the next.
    let broken = format!("session=*; session={one}");
    assert_eq!(host(&[&broken]), SessionHost::default());
}

/// S12-12: a cookie that cannot be read is no cookie.
#[test]
fn what_cannot_be_read_is_no_cookie() {
    let long = format!("session={}", "QUFB".repeat(4096));
    let cases = [
        "",
        "session",
        "session=",
        "session=%",
        "session=////",
        "a=b",
        &long,
    ];
    for header in cases {
        assert_eq!(host(&[header]), SessionHost::default(), "{header}");
    }
    let not_utf_8 = [&b"session=\xff\xfe"[..], b"\xff=1", b"session=gICA"];
    assert_eq!(cookie("").host(not_utf_8), SessionHost::default());
}

/// gRPC C-core: parts that are no addresses are passed over, and a cookie may lack addresses or the cluster.
#[test]
fn parts_may_be_missing() {
    // nonsense,10.0.0.1:80,;c
    let read = host(&["session=bm9uc2Vuc2UsMTAuMC4wLjE6ODAsO2M="]);
    assert_eq!(read.addresses(), addresses(&["10.0.0.1:80"]));
    assert_eq!(read.cluster(), "c");
    // The caller gets a clean one.
    assert!(!read.is(addresses(&["10.0.0.1:80"]), "c"));
    // 10.0.0.1:80
    let read = host(&["session=MTAuMC4wLjE6ODA="]);
    assert_eq!(read.addresses(), addresses(&["10.0.0.1:80"]));
    assert_eq!(read.cluster(), "");
    assert!(!read.is(addresses(&["10.0.0.1:80"]), "c"));
}

/// S12-02, S12-11: a cookie says one host: these addresses in this order, and this cluster.
#[test]
fn a_cookie_says_one_host() {
    let hosts = addresses(&["10.0.0.1:80", "10.0.0.2:80"]);
    let read = host(&[&sent_back(
        &cookie("").set_cookie(hosts.iter().copied(), "c"),
    )]);
    assert!(read.is(hosts.iter().copied(), "c"));
    let swapped = [hosts[1], hosts[0]];
    for (addresses, cluster) in [
        (&hosts[..], "d"),
        (&hosts[..], "cc"),
        (&hosts[..], ""),
        (&hosts[..1], "c"),
        (&swapped, "c"),
        (&[], "c"),
    ] {
        assert!(
            !read.is(addresses.iter().copied(), cluster),
            "{addresses:?} {cluster}"
        );
    }
    assert!(!SessionHost::default().is(hosts.iter().copied(), "c"));
}

/// Hostile cookies are bounded: the work of a pick depends on the addresses.
#[test]
fn addresses_are_bounded() {
    let many: Vec<SocketAddr> = (0..100).map(|port| ([10, 0, 0, 1], port).into()).collect();
    let read = host(&[&sent_back(
        &cookie("").set_cookie(many.iter().copied(), "c"),
    )]);
    assert_eq!(read.addresses(), &many[..32]);
    // The same host again, so nothing is set.
    assert!(read.is(many.iter().copied(), "c"));
}

/// A call with a session costs the text of its cookie, and a new cookie its text.
#[test]
fn cookies_cost_their_texts() {
    let cookie = cookie("/shop");
    let host = addresses(&["10.0.0.1:80", "[2001:db8::1]:443"]);
    let mut set = String::new();
    let setting =
        allocation_counter::measure(|| set = cookie.set_cookie(host.iter().copied(), "shop"));
    assert_eq!(setting.count_total, 1);
    let sent = sent_back(&set);
    let reading = allocation_counter::measure(|| {
        let read = cookie.host([sent.as_bytes()]);
        assert!(read.is(host.iter().copied(), "shop"));
    });
    assert_eq!(reading.count_total, 1);
    let nothing = allocation_counter::measure(|| {
        cookie.host([&b"a=b; c=d"[..]]);
    });
    assert_eq!(nothing.count_total, 0);
}

proptest! {
    /// Any bytes are read without a panic, and within the bounds.
    #[test]
    fn any_bytes_are_read(headers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..3)) {
        let read = cookie("").host(headers.iter().map(Vec::as_slice));
        prop_assert!(read.addresses().len() <= 32);
    }

    /// Any text in a cookie is read without a panic, and any host survives the way to the caller and back.
    #[test]
    fn any_host_survives(
        ports in prop::collection::vec(any::<(u128, bool, u16)>(), 0..6),
        cluster in "[ -~]{0,40}",
    ) {
        let host_of_session: Vec<SocketAddr> = ports
            .iter()
            .map(|(bits, is_v6, port)| match is_v6 {
                true => (bits.to_be_bytes(), *port).into(),
                false => ((*bits as u32).to_be_bytes(), *port).into(),
            })
            .collect();
        let read = host(&[&sent_back(&cookie("").set_cookie(host_of_session.iter().copied(), &cluster))]);
        prop_assert!(read.is(host_of_session.iter().copied(), &cluster));
        prop_assert_eq!(read.addresses(), host_of_session);
        prop_assert_eq!(read.cluster(), cluster);
    }
}
