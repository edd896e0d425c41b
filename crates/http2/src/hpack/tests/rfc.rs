//! The examples of RFC 7541 Appendix C.
//!
//! The examples of requests test the compression only, because the pseudo headers of a request are
//! malformed in a response.

use super::{Decoded, Decoder, Encoder, HpackError, decode, encode, field, hex, status};

const PSEUDO: Decoded = Decoded::Malformed("a pseudo header other than :status");

#[test]
fn c1_integers() {
    for (size, bytes) in [(10, "2a"), (1337, "3f9a0a")] {
        let mut encoder = Encoder::new();
        encoder.set_max_table_size(size);
        let block = encode(&mut encoder, "via", "");
        assert_eq!(block[..], hex(&format!("{bytes} 0f2d 00")), "encode {size}");

        let limit = size as usize;
        assert_eq!(decode(&mut Decoder::new(limit), &hex(bytes)), Ok(vec![]));
        let beyond = decode(&mut Decoder::new(limit - 1), &hex(bytes));
        assert_eq!(beyond, Err(HpackError::TABLE_TOO_LARGE), "decode {size}");
    }
}

#[test]
fn c2_fields() {
    let mut decoder = Decoder::new(4096);
    let indexing = hex("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572");
    let custom = field("custom-key", "custom-header");
    assert_eq!(decode(&mut decoder, &indexing), Ok(vec![custom.clone()]));
    let not_indexed = hex("040c 2f73 616d 706c 652f 7061 7468");
    assert_eq!(decode(&mut decoder, &not_indexed), Ok(vec![PSEUDO]));
    let never_indexed = hex("1008 7061 7373 776f 7264 0673 6563 7265 74");
    assert_eq!(
        decode(&mut decoder, &never_indexed),
        Ok(vec![field("password", "secret")])
    );
    assert_eq!(decode(&mut decoder, &hex("82")), Ok(vec![PSEUDO]));
    assert_table(&mut decoder, &[custom]);
}

#[test]
fn c3_requests() {
    check_requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn c4_requests_in_huffman_code() {
    check_requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

#[test]
fn c5_responses() {
    check_responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ]);
}

#[test]
fn c6_responses_in_huffman_code() {
    check_responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed
         4ee5 b106 3d50 07",
    ]);
}

fn check_requests(blocks: [&str; 3]) {
    let mut decoder = Decoder::new(4096);
    let mut next = |i: usize| decode(&mut decoder, &hex(blocks[i]));
    let no_cache = field("cache-control", "no-cache");
    let custom = field("custom-key", "custom-value");
    assert_eq!(next(0), Ok(vec![PSEUDO; 4]));
    assert_eq!(
        next(1),
        Ok(vec![PSEUDO, PSEUDO, PSEUDO, PSEUDO, no_cache.clone()])
    );
    assert_eq!(
        next(2),
        Ok(vec![PSEUDO, PSEUDO, PSEUDO, PSEUDO, custom.clone()])
    );
    assert_table(&mut decoder, &[custom, no_cache, PSEUDO]);
}

fn check_responses(blocks: [&str; 3]) {
    let mut decoder = Decoder::new(256);
    let mut next = |i: usize| decode(&mut decoder, &hex(blocks[i]));
    let private = field("cache-control", "private");
    let date = field("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    let later = field("date", "Mon, 21 Oct 2013 20:13:22 GMT");
    let location = field("location", "https://www.example.com");
    let gzip = field("content-encoding", "gzip");
    let cookie = field(
        "set-cookie",
        "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    );
    let alike = [private.clone(), date, location.clone()];
    assert_eq!(next(0), Ok([vec![status(302)], alike.to_vec()].concat()));
    assert_eq!(next(1), Ok([vec![status(307)], alike.to_vec()].concat()));
    let last = vec![
        status(200),
        private,
        later.clone(),
        location,
        gzip.clone(),
        cookie.clone(),
    ];
    assert_eq!(next(2), Ok(last));
    assert_table(&mut decoder, &[cookie, gzip, later]);
}

/// Asserts that the dynamic table has these fields and no others, the newest first.
fn assert_table(decoder: &mut Decoder, fields: &[Decoded]) {
    let indexes: Vec<u8> = (0..fields.len() as u8)
        .map(|place| 0x80 | (62 + place))
        .collect();
    assert_eq!(decode(decoder, &indexes).as_deref(), Ok(fields));
    let beyond = 0x80 | (62 + fields.len() as u8);
    assert_eq!(decode(decoder, &[beyond]), Err(HpackError::NO_SUCH_FIELD));
}
