//! Finds the resources that the reason of a refusal names.
//!
//! A refusal is of a whole response, and only its text says which resources are bad. Clients write
//! names in many ways, so a name counts if it stands alone in the text.

/// For each name, true if the text has it. Where one name is a part of another, the longer one
/// counts.
pub(super) fn named<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<bool> {
    let names: Vec<&str> = names.into_iter().collect();
    let mut longest_first: Vec<usize> = (0..names.len()).collect();
    longest_first.sort_by_key(|&index| std::cmp::Reverse(names[index].len()));
    let mut text = text.as_bytes().to_vec();
    let mut found = vec![false; names.len()];
    for index in longest_first {
        found[index] = take(&mut text, names[index].as_bytes());
    }
    found
}

/// Blanks a name wherever it stands alone. Returns true if it did anywhere.
fn take(text: &mut [u8], name: &[u8]) -> bool {
    if name.is_empty() {
        return false;
    }
    let mut found = false;
    let mut from = 0;
    while let Some(at) = find(&text[from..], name) {
        let (start, end) = (from + at, from + at + name.len());
        if stands_alone(text, start, end) {
            text[start..end].fill(0);
            found = true;
        }
        from = start + 1;
    }
    found
}

fn find(text: &[u8], name: &[u8]) -> Option<usize> {
    text.windows(name.len()).position(|window| window == name)
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
}
