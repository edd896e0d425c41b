//! Tests of fields that HTTP does not allow.
//!
//! Only the response is lost, because other calls share the connection.

use super::{Decoded, Decoder, decode, field, hex, status};

#[test]
fn names_and_values_that_http_does_not_allow() {
    for (dump, why) in [
        ("00 01 41 00", NAME),                      // A
        ("00 00 00", NAME),                         // no name
        ("00 02 6120 00", NAME),                    // a space in the name
        ("00 05 3a70617468 01 2f", PSEUDO),         // :path
        ("00 02 3a78 00", PSEUDO),                  // :x
        ("84", PSEUDO),                             // :path of the static table
        ("04 01 2f", PSEUDO),                       // its name alone
        ("08 02 3230", STATUS),                     // 20
        ("08 04 32303030", STATUS),                 // 2000
        ("08 03 303939", STATUS),                   // 099
        ("08 00", STATUS),                          //
        ("00 07 3a737461747573 03 61626f", STATUS), // :status: abo
        ("0f2d 01 00", VALUE),                      // NUL
        ("0f2d 01 0d", VALUE),                      // CR
        ("0f2d 01 0a", VALUE),                      // LF
        ("0f2d 01 7f", VALUE),                      // DEL
    ] {
        let fields = decode(&mut Decoder::new(4096), &hex(dump));
        assert_eq!(fields, Ok(vec![Decoded::Malformed(why)]), "{dump}");
    }
}

#[test]
fn values_that_http_hardly_allows() {
    let mut decoder = Decoder::new(4096);
    let spaces = decode(&mut decoder, &hex("0f2d 03 206120"));
    assert_eq!(spaces, Ok(vec![field("via", " a ")]));
    let not_ascii = decode(&mut decoder, &hex("0f2d 02 c3a4")).unwrap();
    let [Decoded::Field(_, value)] = &not_ascii[..] else {
        panic!("{not_ascii:?}");
    };
    assert_eq!(value.as_bytes(), "ä".as_bytes());
}

#[test]
fn a_status_may_have_any_representation() {
    for dump in [
        "88",
        "48 03 323030",
        "08 03 323030",
        "00 07 3a737461747573 03 323030",
    ] {
        let fields = decode(&mut Decoder::new(4096), &hex(dump));
        assert_eq!(fields, Ok(vec![status(200)]), "{dump}");
    }
}

#[test]
fn fields_around_a_malformed_one_are_emitted_in_order() {
    let fields = decode(&mut Decoder::new(4096), &hex("88 00 01 41 00 bd"));
    let expected = vec![
        status(200),
        Decoded::Malformed(NAME),
        field("www-authenticate", ""),
    ];
    assert_eq!(fields, Ok(expected));
}

/// The peer adds a malformed field to its table, so the decoder must add it, too.
#[test]
fn a_malformed_field_enters_the_table() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &hex("7c 01 61 40 01 41 01 62")).unwrap(); // via: a, A: b
    let expected = vec![Decoded::Malformed(NAME), field("via", "a")];
    assert_eq!(decode(&mut decoder, &hex("be bf")), Ok(expected));
}

#[test]
fn a_malformed_field_takes_its_room_in_the_table() {
    let mut decoder = Decoder::new(36 + 34);
    for malformed in ["40 01 41 01 62", "40 01 78 01 00", "40 02 3a78 00"] {
        decode(&mut decoder, &hex("7c 01 61")).unwrap(); // via: a, 36 bytes
        decode(&mut decoder, &hex(malformed)).unwrap(); // 34 bytes
        assert_eq!(
            decode(&mut decoder, &hex("bf")),
            Ok(vec![field("via", "a")]),
            "{malformed}"
        );
        decode(&mut decoder, &hex("40 01 78 00")).unwrap(); // 33 bytes: via is evicted
        let expected = vec![field("x", "")];
        assert_eq!(
            decode(&mut decoder, &hex("be")),
            Ok(expected),
            "{malformed}"
        );
        assert!(decode(&mut decoder, &hex("c0")).is_err(), "{malformed}");
    }
}

#[test]
fn the_name_of_a_malformed_value_can_be_used() {
    let mut decoder = Decoder::new(4096);
    let bad = decode(&mut decoder, &hex("40 01 78 01 00")); // x: NUL
    assert_eq!(bad, Ok(vec![Decoded::Malformed(VALUE)]));
    assert_eq!(
        decode(&mut decoder, &hex("0f2f 01 61")),
        Ok(vec![field("x", "a")])
    );
    let status_bad = decode(&mut decoder, &hex("48 01 00"));
    assert_eq!(status_bad, Ok(vec![Decoded::Malformed(VALUE)]));
    assert_eq!(
        decode(&mut decoder, &hex("0f2f 03 323030")),
        Ok(vec![status(200)])
    );
}

const NAME: &str = "a header name with a character that none may have";
const PSEUDO: &str = "a pseudo header other than :status";
const STATUS: &str = "a :status that is no status code";
const VALUE: &str = "a header value with a byte that none may have";
