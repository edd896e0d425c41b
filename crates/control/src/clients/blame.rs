//! Finds the resources that the reason of a refusal names.
//!
//! A refusal is of a whole response, and only its text says which resources are bad. Clients write
//! names in many ways, so a name counts if it stands alone in the text.

/// A place in the text where a name stands alone.
struct Match {
    start: usize,
    end: usize,
    /// The number of the name.
    name: usize,
}

/// For each name, true if the text has it. Where one name is a part of another, the longer one
/// counts.
pub(super) fn named<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<bool> {
    let text = text.as_bytes();
    let names: Vec<&[u8]> = names.into_iter().map(str::as_bytes).collect();
    let mut found = vec![false; names.len()];
    let mut matches = matches(text, &names);
    matches.sort_by_key(|of| (std::cmp::Reverse(of.end - of.start), of.name, of.start));
    let mut taken = vec![false; text.len()];
    for Match { start, end, name } in matches {
        let place = &mut taken[start..end];
        if !place.contains(&true) {
            place.fill(true);
            found[name] = true;
        }
    }
    found
}

/// All places where a name stands alone. The text is read once, however many names there are. The
/// sorted names that begin as the text does are a range, and each byte makes the range smaller.
fn matches(text: &[u8], names: &[&[u8]]) -> Vec<Match> {
    let mut sorted: Vec<usize> = (0..names.len()).collect();
    sorted.sort_by_key(|&name| names[name]);
    let mut matches = Vec::new();
    for start in 0..text.len() {
        let mut range = &sorted[..];
        for (depth, byte) in text[start..].iter().enumerate() {
            let next = |name: &usize| names[*name].get(depth);
            let begin = range.partition_point(|name| next(name) < Some(byte));
            let end = range.partition_point(|name| next(name) <= Some(byte));
            range = &range[begin..end];
            // The shortest one comes first.
            let Some(&name) = range.first() else { break };
            let end = start + depth + 1;
            if names[name].len() == depth + 1 && stands_alone(text, start, end) {
                matches.push(Match { start, end, name });
            }
        }
    }
    matches
}

/// True if the neighbours of a part of the text do not belong to a name. A full stop does only
/// between two other characters of a name.
fn stands_alone(text: &[u8], start: usize, end: usize) -> bool {
    let is_of_name = |at: usize| {
        let byte = text.get(at);
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_-/%".contains(byte))
    };
    let before = start.checked_sub(1);
    let starts = before.is_none_or(|at| !is_of_name(at) && text[at] != b'.');
    let is_stop = text.get(end) == Some(&b'.');
    let goes_on = is_of_name(end) || (is_stop && is_of_name(end + 1));
    starts && !goes_on
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// F-04: the texts are those of Envoy, gRPC C-core, gRPC-Go and Crowfly.
    #[test]
    fn names_in_the_reason_are_found() {
        let names = ["payments", "pay", "a.b", "b", "xdstp://x/c/y"];
        for (text, expected) in [
            (
                "Error adding/updating cluster(s) payments: Didn't find a factory",
                "payments",
            ),
            (
                "xDS response validation errors: [resource index 0: pay: INVALID_ARGUMENT: x]",
                "pay",
            ),
            ("resource a.b, then \"b\".", "a.b b"),
            ("payments.", "payments"),
            (
                "payments.example and my-payments and payments-2 and a.b.c",
                "",
            ),
            ("xdstp://x/c/y: no", "xdstp://x/c/y"),
            ("", ""),
        ] {
            let found = named(text, names);
            let found = names.iter().zip(found).filter(|(_, found)| *found);
            let found: Vec<_> = found.map(|(name, _)| *name).collect();
            assert_eq!(found.join(" "), expected, "{text}");
        }
        assert_eq!(named("x", [""]), [false]);
    }

    /// Finds the names by a search for each, the longest first. It is slower and simpler than
    /// [`named`], so a test compares the two.
    fn searched(text: &str, names: &[String]) -> Vec<bool> {
        let mut longest_first: Vec<usize> = (0..names.len()).collect();
        longest_first.sort_by_key(|&name| std::cmp::Reverse(names[name].len()));
        let (original, mut text) = (text.as_bytes(), text.as_bytes().to_vec());
        let mut found = vec![false; names.len()];
        for name in longest_first {
            let (bytes, length) = (names[name].as_bytes(), names[name].len());
            for start in 0..(text.len() + 1).saturating_sub(length) {
                let end = start + length;
                if text[start..end] == *bytes && stands_alone(original, start, end) {
                    text[start..end].fill(0);
                    found[name] = true;
                }
            }
        }
        found
    }

    proptest! {
        #[test]
        fn names_are_found_as_by_a_search_for_each(
            text in "[ab.: -]{0,30}",
            names in prop::collection::btree_set("[ab.:-]{1,4}", 0..12),
        ) {
            let names: Vec<String> = names.into_iter().collect();
            let found = named(&text, names.iter().map(String::as_str));
            prop_assert_eq!(found, searched(&text, &names));
        }
    }

    /// The text of a client is not searched for each of the names.
    #[test]
    fn many_names_take_little_time() {
        let names: Vec<String> = (0..1 << 16)
            .map(|number| format!("name-{number}"))
            .collect();
        let text = "name-7 ".repeat(4096 / 7);
        let started = std::time::Instant::now();
        let found = named(&text, names.iter().map(String::as_str));
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_secs(3), "{took:?}");
        assert_eq!(found.iter().position(|found| *found), Some(7));
    }
}
