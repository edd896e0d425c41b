//! The Huffman code of strings (RFC 7541 5.2 and Appendix B), decoding only.
//!
//! The code is canonical: shorter codes come first, and codes of one length ascend with their symbols. So the symbols
//! of each length, in order, define the whole code. Aligned to the left, the codes of one length are a range that
//! starts where the range of the length before ends. A code is found by comparing with the ends of the ranges. Codes of
//! up to eight bits are looked up by their first byte instead, because nearly all characters of headers have such
//! codes.

use super::HpackError;

/// Appends the decoded string to `out`.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    out.reserve(input.len() * 8 / SHORTEST as usize);
    let mut input = input.iter();
    let mut window = 0_u64; // the bits to decode, aligned to the left
    let mut held = 0; // how many they are
    loop {
        while held <= 56
            && let Some(&byte) = input.next()
        {
            window |= u64::from(byte) << (56 - held);
            held += 8;
        }
        let (mut symbol, mut bits) = first_symbol(window);
        while bits <= held {
            out.push(symbol.ok_or(HpackError::HUFFMAN_EOS)?);
            window <<= bits;
            held -= bits;
            (symbol, bits) = first_symbol(window);
        }
        if input.len() == 0 {
            return check_padding(window, held);
        }
    }
}

/// The symbol that `window` starts with, none for the end of string; and the length of its code.
fn first_symbol(window: u64) -> (Option<u8>, u32) {
    let (symbol, bits) = SHORT[(window >> 56) as usize];
    if bits != 0 {
        return (Some(symbol), u32::from(bits));
    }
    let code = (window >> 32) as u32;
    let mut start = 0;
    for range in &RANGES {
        if code < range.end {
            let place = (code - start) >> (32 - range.bits);
            return (range.symbols.get(place as usize).copied(), range.bits);
        }
        start = range.end;
    }
    (None, EOS_BITS)
}

/// Checks the bits after the last symbol. The bits must be fewer than a byte, and begin the code of the end of string,
/// which is all ones.
fn check_padding(window: u64, held: u32) -> Result<(), HpackError> {
    if held < 8 && window.leading_ones() == held {
        return Ok(());
    }
    Err(HpackError::HUFFMAN_PADDING)
}

/// The codes of one length.
struct Range {
    bits: u32,
    symbols: &'static [u8],
    /// The first code after them, aligned to the left in 32 bits.
    end: u32,
}

/// The length of the shortest code.
const SHORTEST: u32 = 5;

/// The length of the code of the end of string, which is the last code of all.
const EOS_BITS: u32 = 30;

static RANGES: [Range; 21] = ranges();

/// The symbol and the length of the code that a byte starts with. Length 0 means a code of more than eight bits.
static SHORT: [(u8, u8); 256] = short();

const fn ranges() -> [Range; 21] {
    const EMPTY: Range = Range {
        bits: 0,
        symbols: &[],
        end: 0,
    };
    let mut ranges = [EMPTY; 21];
    let mut end = 0;
    let mut i = 0;
    while i < CODE.len() {
        let (bits, symbols) = CODE[i];
        end += (symbols.len() as u32) << (32 - bits);
        ranges[i] = Range { bits, symbols, end };
        i += 1;
    }
    ranges
}

const fn short() -> [(u8, u8); 256] {
    let mut short = [(0, 0); 256];
    let mut filled = 0;
    let mut i = 0;
    while CODE[i].0 <= 8 {
        let (bits, symbols) = CODE[i];
        let mut place = 0;
        while place < symbols.len() {
            // every byte that starts with this code
            let next = filled + (1 << (8 - bits));
            while filled < next {
                short[filled] = (symbols[place], bits as u8);
                filled += 1;
            }
            place += 1;
        }
        i += 1;
    }
    short
}

/// The symbols by the length of their codes. The last code, the end of string, is no byte.
const CODE: [(u32, &[u8]); 21] = [
    (SHORTEST, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b"!\"()?"),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\x00$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
    (19, b"\\\xc3\xd0"),
    (20, b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"),
    (21, b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"),
    (
        22,
        b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\
          \xc4\xc6\xe4\xe8\xe9",
    ),
    (
        23,
        b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\
          \xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef",
    ),
    (24, b"\x09\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"),
    (25, b"\xc7\xcf\xea\xeb"),
    (
        26,
        b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
    ),
    (
        27,
        b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    ),
    (
        28,
        b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\
          \x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9",
    ),
    (EOS_BITS, b"\x0a\x0d\x16"),
];

/// Encodes a string as a peer does, for tests.
#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut window = 0_u64;
    let mut held = 0;
    for symbol in text {
        let (code, bits) = tests::code(*symbol);
        window = window << bits | u64::from(code);
        held += bits;
        while held >= 8 {
            held -= 8;
            out.push((window >> held) as u8);
        }
    }
    if held > 0 {
        out.push((window << (8 - held)) as u8 | 0xff >> held);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code of a symbol, and its length.
    pub(super) fn code(symbol: u8) -> (u32, u32) {
        let mut start = 0;
        for range in &RANGES {
            if let Some(place) = range.symbols.iter().position(|&other| other == symbol) {
                return ((start >> (32 - range.bits)) + place as u32, range.bits);
            }
            start = range.end;
        }
        panic!("{symbol} has no code");
    }

    fn decoded(code: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = Vec::new();
        decode(code, &mut out).map(|()| out)
    }

    /// Some of Appendix B: both ends of some lengths.
    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, expected) in [
            (b'0', (0x0, 5)),
            (b't', (0x9, 5)),
            (b' ', (0x14, 6)),
            (b'u', (0x2d, 6)),
            (b':', (0x5c, 7)),
            (b'z', (0x7b, 7)),
            (b'&', (0xf8, 8)),
            (b'Z', (0xfd, 8)),
            (b'!', (0x3f8, 10)),
            (b'{', (0x7ffe, 15)),
            (b'\\', (0x7fff0, 19)),
            (0, (0x1ff8, 13)),
            (9, (0xff_ffea, 24)),
            (239, (0x7f_fff4, 23)),
            (255, (0x3ff_ffee, 26)),
            (249, (0xfff_fffe, 28)),
            (b'\n', (0x3fff_fffc, 30)),
            (22, (0x3fff_fffe, 30)),
        ] {
            assert_eq!(code(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn the_code_is_complete_and_canonical() {
        let mut symbols: Vec<u8> = CODE
            .iter()
            .flat_map(|(_, symbols)| *symbols)
            .copied()
            .collect();
        symbols.sort_unstable();
        assert_eq!(symbols, (0..=255).collect::<Vec<_>>());
        assert!(CODE.iter().all(|(_, symbols)| symbols.is_sorted()));
        let eos = u32::MAX << (32 - EOS_BITS);
        assert_eq!(RANGES[RANGES.len() - 1].end, eos);
    }

    #[test]
    fn every_symbol_is_decoded() {
        for symbol in 0..=255 {
            let text = [symbol, b'a', symbol];
            assert_eq!(decoded(&encode(&text)), Ok(text.to_vec()));
        }
    }

    #[test]
    fn padding_is_less_than_a_byte_of_ones() {
        for (code, expected) in [
            (&[][..], Ok(&b""[..])),
            (&[0b0001_1111], Ok(b"a")),
            (&[0b0001_1110], Err(HpackError::HUFFMAN_PADDING)),
            (&[0b0001_1011], Err(HpackError::HUFFMAN_PADDING)),
            (&[0b0001_1111, 0xff], Err(HpackError::HUFFMAN_PADDING)),
            (&[0xff], Err(HpackError::HUFFMAN_PADDING)),
            (&[0xff, 0xff, 0xff], Err(HpackError::HUFFMAN_PADDING)),
            (&[0xff, 0xff, 0xff, 0xff], Err(HpackError::HUFFMAN_EOS)),
            (
                &[0b0001_1111, 0xff, 0xff, 0xff, 0xff],
                Err(HpackError::HUFFMAN_EOS),
            ),
            (&[0xff, 0xff, 0xff, 0xf2], Err(HpackError::HUFFMAN_PADDING)),
        ] {
            assert_eq!(decoded(code).as_deref(), expected.as_deref(), "{code:x?}");
        }
    }
}
