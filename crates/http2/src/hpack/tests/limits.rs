//! Tests of the limits on memory and work, because a server may be hostile.

use super::{Decoded, Decoder, HpackError, ListSize, decode, decode_within, field, hex, status};

#[test]
fn a_block_that_ends_inside_a_field_is_refused() {
    // C.6.1: four literals, of which these are the ends
    let block = hex(
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0
                     82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
    );
    let ends = [0, 4, 11, 35, 54];
    assert_eq!(block.len(), 54);
    for len in 0..=block.len() {
        let result = decode(&mut Decoder::new(4096), &block[..len]).map(|fields| fields.len());
        match ends.iter().position(|&end| end == len) {
            Some(fields) => assert_eq!(result, Ok(fields), "{len}"),
            None => assert_eq!(result, Err(HpackError::TRUNCATED), "{len}"),
        }
    }
}

#[test]
fn integers_end_at_32_bits_and_at_five_bytes() {
    for (dump, error) in [
        ("ff 80 ff ff ff 0f", HpackError::NO_SUCH_FIELD), // 2^32 - 1
        ("ff 81 ff ff ff 0f", HpackError::INTEGER_TOO_LARGE), // 2^32
        ("ff ff ff ff ff 7f", HpackError::INTEGER_TOO_LARGE),
        ("ff ff ff ff ff ff", HpackError::INTEGER_TOO_LARGE),
        ("ff 80 80 80 80 00", HpackError::NO_SUCH_FIELD), // 127, at length
        ("ff 80 80 80 80 80 00", HpackError::INTEGER_TOO_LARGE),
        ("ff ff ff", HpackError::TRUNCATED),
        ("00 7f 80 ff ff ff 0f", HpackError::TRUNCATED), // a name of 2^32 - 1 bytes
    ] {
        assert_eq!(
            decode(&mut Decoder::new(4096), &hex(dump)),
            Err(error),
            "{dump}"
        );
    }
}

#[test]
fn an_index_must_be_in_a_table() {
    for dump in ["80", "be", "7e 00", "0f 2f 00", "1f 2f 00"] {
        let result = decode(&mut Decoder::new(4096), &hex(dump));
        assert_eq!(result, Err(HpackError::NO_SUCH_FIELD), "{dump}");
    }
    let last_static = decode(&mut Decoder::new(4096), &hex("bd"));
    assert_eq!(last_static, Ok(vec![field("www-authenticate", "")]));
}

#[test]
fn the_table_size_changes_at_the_start_of_a_block_only() {
    let mut decoder = Decoder::new(4096);
    assert_eq!(
        decode(&mut decoder, &hex("20 3fe11f 88")),
        Ok(vec![status(200)])
    );
    assert_eq!(
        decode(&mut decoder, &hex("88 20")),
        Err(HpackError::LATE_TABLE_SIZE)
    );
}

#[test]
fn the_table_is_never_larger_than_allowed() {
    let via = "7c 01 61"; // via: a, 36 bytes of the table
    for (limit, resize, works) in [
        (4096, "", true),
        (36, "", true),
        (35, "", false),
        (0, "", false),
        (4096, "3f04", false),  // 35
        (4096, "3f05", true),   // 36
        (8192, "3fe13f", true), // 8192
    ] {
        let mut decoder = Decoder::new(limit);
        let block = hex(&format!("{resize} {via}"));
        assert_eq!(decode(&mut decoder, &block), Ok(vec![field("via", "a")]));
        let again = decode(&mut decoder, &hex("be"));
        assert_eq!(again.is_ok(), works, "{limit} {resize}");
    }
    let too_large = decode(&mut Decoder::new(4096), &hex("3fe21f"));
    assert_eq!(too_large, Err(HpackError::TABLE_TOO_LARGE));
}

/// RFC 9113 4.3.1: our SETTINGS allow more than the default, they do not ask for it.
#[test]
fn a_table_larger_than_the_default_is_the_peers_choice() {
    let mut decoder = Decoder::new(8192);
    let large = [hex("7c 7f 892e"), vec![b'a'; 6024]].concat();
    decode(&mut decoder, &large).unwrap();
    assert_eq!(
        decode(&mut decoder, &hex("be")),
        Err(HpackError::NO_SUCH_FIELD)
    );
    decode(&mut decoder, &[hex("3fe13f"), large].concat()).unwrap();
    assert_eq!(
        decode(&mut decoder, &hex("be")).map(|fields| fields.len()),
        Ok(1)
    );
}

/// RFC 7541 4.4: an entry larger than the table is not an error.
#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(40);
    decode(&mut decoder, &hex("7c 01 61")).unwrap();
    let large = decode(&mut decoder, &hex("7c 06 616161616161")).unwrap();
    assert_eq!(large, [field("via", "aaaaaa")]);
    assert_eq!(
        decode(&mut decoder, &hex("be")),
        Err(HpackError::NO_SUCH_FIELD)
    );
}

/// RFC 7541 4.4: the name may be that of an entry that goes to make room.
#[test]
fn an_entry_may_be_named_after_the_one_it_evicts() {
    let mut decoder = Decoder::new(34);
    decode(&mut decoder, &hex("40 01 78 01 61")).unwrap(); // x: a
    assert_eq!(
        decode(&mut decoder, &hex("7e 01 62")),
        Ok(vec![field("x", "b")])
    );
    assert_eq!(
        decode(&mut decoder, &hex("be bf")),
        Err(HpackError::NO_SUCH_FIELD)
    );
    assert_eq!(decode(&mut decoder, &hex("be")), Ok(vec![field("x", "b")]));
}

/// One byte per reference to a large field would expand a thousandfold.
#[test]
fn what_a_block_expands_to_is_limited() {
    let mut decoder = Decoder::new(4096);
    let value = "a".repeat(4000);
    let large = [&hex("7c 7f a11e"), value.as_bytes()].concat(); // via: 4000 bytes, in the table
    let bomb = [large, vec![0xbe; 100_000]].concat();
    let size = 3 + 4000 + 32;
    for (limit, emitted) in [
        (0, 0),
        (size - 1, 0),
        (size, 1),
        (3 * size, 3),
        (4 * size - 1, 3),
    ] {
        let (fields, size) = decode_within(&mut decoder, &bomb, limit).unwrap();
        assert_eq!(
            (size, fields.len()),
            (ListSize::Exceeded, emitted),
            "{limit}"
        );
    }
    assert_eq!(
        decode(&mut decoder, &hex("be")),
        Ok(vec![field("via", &value)])
    );
}

#[test]
fn past_the_limit_small_fields_are_left_out_too_but_the_table_is_kept() {
    let mut decoder = Decoder::new(4096);
    let block = hex("88 7c 03 616161 7c 01 62"); // 42 bytes, via: aaa (38), via: b (36)
    let result = decode_within(&mut decoder, &block, 42 + 37);
    assert_eq!(result, Ok((vec![status(200)], ListSize::Exceeded)));
    assert_eq!(
        decode(&mut decoder, &hex("be bf")),
        Ok(vec![field("via", "b"), field("via", "aaa")])
    );
}

#[test]
fn a_malformed_field_counts_for_the_list() {
    let block = hex("00 01 41 01 62"); // A: b
    for (limit, expected) in [(33, ListSize::Exceeded), (34, ListSize::Within)] {
        let decoded = decode_within(&mut Decoder::new(4096), &block, limit);
        let (fields, size) = decoded.unwrap();
        assert_eq!(size, expected);
        assert_eq!(fields.len(), usize::from(expected == ListSize::Within));
        assert!(
            fields
                .iter()
                .all(|field| matches!(field, Decoded::Malformed(_)))
        );
    }
}
