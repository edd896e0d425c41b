//! The groups of characters that RE2 knows by name, such as `\p{Lu}` and `\p{Greek}`.
//!
//! Paths and the values of headers are ASCII, so of each group only its ASCII characters count. So no tables of Unicode
//! are needed.

/// The ASCII characters of the group `name`, as the inside of a character class. Empty if the group has none, and
/// `None` if RE2 does not know the name.
pub(super) fn ascii_of(name: &str) -> Option<&'static str> {
    let known = ASCII.iter().find(|(group, _)| *group == name);
    let members = known.map(|(_, members)| *members);
    members.or_else(|| BEYOND_ASCII.contains(&name).then_some(""))
}

/// General categories and scripts with ASCII characters.
const ASCII: [(&str, &str); 22] = [
    ("Any", r"\x00-\xFF"),
    ("C", r"\x00-\x1F\x7F"),
    ("Cc", r"\x00-\x1F\x7F"),
    ("Common", r"\x00-@\[-`\{-\x7F"),
    ("L", "A-Za-z"),
    ("Latin", "A-Za-z"),
    ("Ll", "a-z"),
    ("Lu", "A-Z"),
    ("N", "0-9"),
    ("Nd", "0-9"),
    ("P", r"!-#%-*,-/:;?@\[-\]_\{\}"),
    ("Pc", "_"),
    ("Pd", r"\-"),
    ("Pe", r"\)\]\}"),
    ("Po", r"!-#%-'*,./:;?@\\"),
    ("Ps", r"\(\[\{"),
    ("S", r"\$+<->\^`|~"),
    ("Sc", r"\$"),
    ("Sk", r"\^`"),
    ("Sm", r"+<->|~"),
    ("Z", r"\x20"),
    ("Zs", r"\x20"),
];

/// General categories and scripts without ASCII characters.
#[rustfmt::skip]
const BEYOND_ASCII: [&str; 178] = [
    "Adlam", "Ahom", "Anatolian_Hieroglyphs", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum",
    "Bassa_Vah", "Batak", "Bengali", "Bhaiksuki", "Bopomofo", "Brahmi", "Braille", "Buginese", "Buhid",
    "Canadian_Aboriginal", "Carian", "Caucasian_Albanian", "Cf", "Chakma", "Cham", "Cherokee", "Chorasmian",
    "Co", "Coptic", "Cs", "Cuneiform", "Cypriot", "Cypro_Minoan", "Cyrillic", "Deseret", "Devanagari",
    "Dives_Akuru", "Dogra", "Duployan", "Egyptian_Hieroglyphs", "Elbasan", "Elymaic", "Ethiopic", "Georgian",
    "Glagolitic", "Gothic", "Grantha", "Greek", "Gujarati", "Gunjala_Gondi", "Gurmukhi", "Han", "Hangul",
    "Hanifi_Rohingya", "Hanunoo", "Hatran", "Hebrew", "Hiragana", "Imperial_Aramaic", "Inherited",
    "Inscriptional_Pahlavi", "Inscriptional_Parthian", "Javanese", "Kaithi", "Kannada", "Katakana", "Kawi",
    "Kayah_Li", "Kharoshthi", "Khitan_Small_Script", "Khmer", "Khojki", "Khudawadi", "Lao", "Lepcha", "Limbu",
    "Linear_A", "Linear_B", "Lisu", "Lm", "Lo", "Lt", "Lycian", "Lydian", "M", "Mahajani", "Makasar",
    "Malayalam", "Mandaic", "Manichaean", "Marchen", "Masaram_Gondi", "Mc", "Me", "Medefaidrin",
    "Meetei_Mayek", "Mende_Kikakui", "Meroitic_Cursive", "Meroitic_Hieroglyphs", "Miao", "Mn", "Modi",
    "Mongolian", "Mro", "Multani", "Myanmar", "Nabataean", "Nag_Mundari", "Nandinagari", "New_Tai_Lue",
    "Newa", "Nko", "Nl", "No", "Nushu", "Nyiakeng_Puachue_Hmong", "Ogham", "Ol_Chiki", "Old_Hungarian",
    "Old_Italic", "Old_North_Arabian", "Old_Permic", "Old_Persian", "Old_Sogdian", "Old_South_Arabian",
    "Old_Turkic", "Old_Uyghur", "Oriya", "Osage", "Osmanya", "Pahawh_Hmong", "Palmyrene", "Pau_Cin_Hau", "Pf",
    "Phags_Pa", "Phoenician", "Pi", "Psalter_Pahlavi", "Rejang", "Runic", "Samaritan", "Saurashtra",
    "Sharada", "Shavian", "Siddham", "SignWriting", "Sinhala", "So", "Sogdian", "Sora_Sompeng", "Soyombo",
    "Sundanese", "Syloti_Nagri", "Syriac", "Tagalog", "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Takri",
    "Tamil", "Tangsa", "Tangut", "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Toto",
    "Ugaritic", "Vai", "Vithkuqi", "Wancho", "Warang_Citi", "Yezidi", "Yi", "Zanabazar_Square", "Zl", "Zp",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A character has one category and one script, so the groups of one letter are disjoint, and so are those of
    /// two. Each ASCII character is in one of them.
    #[test]
    fn every_ascii_character_has_one_category_and_one_script() {
        for groups in [
            &["C", "L", "N", "P", "S", "Z"][..],
            &[
                "Cc", "Ll", "Lu", "Nd", "Pc", "Pd", "Pe", "Po", "Ps", "Sc", "Sk", "Sm", "Zs",
            ],
            &["Common", "Latin"],
            &["Any"],
        ] {
            for c in 0..128_u8 {
                let is_in = |name: &&&str| {
                    let class = format!("[{}]", ascii_of(name).unwrap());
                    let class = regex::bytes::RegexBuilder::new(&class)
                        .unicode(false)
                        .build();
                    class.unwrap().is_match(&[c])
                };
                let of: Vec<_> = groups.iter().filter(is_in).collect();
                assert_eq!(of.len(), 1, "{:?} is in {of:?}", char::from(c));
            }
        }
        assert_eq!(ascii_of("Greek"), Some(""));
        assert_eq!(ascii_of("Klingon"), None);
    }
}
