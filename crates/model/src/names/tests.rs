//! Tests of the names of resources (gRFC A47). Spellings of one name must have one canonical form,
//! because the order of parameters means nothing.

use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

fn named(name: &str) -> Authority<'_> {
    Authority::Named(name.into())
}

#[test]
fn authorities() {
    let cases = [
        ("payments", Authority::Default),
        ("", Authority::Default),
        ("xdstp.example", Authority::Default),
        ("xdstp://a.example/t/x", named("a.example")),
        ("xdstp:///t/x", named("")),
        ("xdstp://a%2Fb:80/t/x", named("a/b:80")),
        ("xdstp://a?b", named("a")),
        ("xdstp://a", named("a")),
        ("xdstp:nonsense", named("")),
        // Not properly encoded: nothing is guessed.
        ("xdstp://a%2/t/x", named("a%2")),
        ("xdstp://a%zz/t/x", named("a%zz")),
        ("xdstp://a%FF/t/x", named("a%FF")),
    ];
    for (name, expected) in cases {
        assert_eq!(authority_of(name), expected, "{name}");
    }
}

/// S1-36 (part): the order of parameters means nothing.
#[test]
fn canonical_names() {
    let cases = [
        ("xdstp://a/t/x", "xdstp://a/t/x"),
        ("xdstp:///t/x", "xdstp:///t/x"),
        ("xdstp://a/t/x/y?b=2&a=1", "xdstp://a/t/x/y?a=1&b=2"),
        // The last of equal keys is kept.
        ("xdstp://a/t/x?a=1&b=2&a=3", "xdstp://a/t/x?a=3&b=2"),
        ("xdstp://a/t/x?a&&b=", "xdstp://a/t/x?a=&b="),
        ("xdstp://a/t/x?", "xdstp://a/t/x"),
        ("xdstp://a/t/x?b=1=2", "xdstp://a/t/x?b=1=2"),
        // Directives are no part of a name.
        ("xdstp://a/t/x?a=1#alt=xdstp://b/t/x", "xdstp://a/t/x?a=1"),
        // The encoding is kept.
        (
            "xdstp://a/t/%20%2f?k%26=v%3d",
            "xdstp://a/t/%20%2f?k%26=v%3d",
        ),
        // Not ours to order.
        ("payments?b=2&a=1", "payments?b=2&a=1"),
    ];
    for (name, expected) in cases {
        assert_eq!(canonical(name).unwrap(), expected, "{name}");
    }
    assert!(matches!(
        canonical("xdstp://a/t/x?a=1&b=2"),
        Ok(Cow::Borrowed(_))
    ));
}

#[test]
fn malformed_names_say_what_was_expected() {
    for name in [
        "xdstp:",
        "xdstp:a",
        "xdstp:/t/x",
        "xdstp://",
        "xdstp://a",
        "xdstp://a/t",
        "xdstp://a//x",
    ] {
        assert_eq!(
            canonical(name).unwrap_err().to_string(),
            format!("resource name {name:?}: expected xdstp://authority/type/id")
        );
    }
    assert_eq!(
        canonical("xdstp://a/t/x?=1").unwrap_err().to_string(),
        "resource name \"xdstp://a/t/x?=1\": expected key=value, got \"=1\""
    );
    assert_eq!(
        canonical("xdstp://a/t/x y").unwrap_err().to_string(),
        "resource name \"xdstp://a/t/x y\": expected no ' '"
    );
}

#[test]
fn parts_of_a_name() {
    let name = ResourceName::parse("xdstp://a/envoy.T/x/y?k=v")
        .unwrap()
        .unwrap();
    assert_eq!(name.resource_type(), "envoy.T");
    assert_eq!(ResourceName::parse("payments"), Ok(None));
}

/// gRFC A47: `/` is kept, as is all that a path may hold; an old-style template encodes nothing.
#[test]
fn templates() {
    let cases = [
        ("%s", "a b?c%", "a b?c%"),
        ("", "x", ""),
        ("grpc/%s/%s", "x", "grpc/x/x"),
        (
            "xdstp://a/t/%s",
            "payments:50051",
            "xdstp://a/t/payments:50051",
        ),
        (
            "xdstp://a/t/%s?p=1",
            "a/b c?d#e%f",
            "xdstp://a/t/a/b%20c%3Fd%23e%25f?p=1",
        ),
        (
            "xdstp://a/t/%s",
            "-._~!$&'()*+,;=:@",
            "xdstp://a/t/-._~!$&'()*+,;=:@",
        ),
        ("xdstp://a/t/%s", "[::1]:8080", "xdstp://a/t/%5B::1%5D:8080"),
        ("xdstp://a/t/%s", "é", "xdstp://a/t/%C3%A9"),
        ("xdstp://a/t/fixed", "x", "xdstp://a/t/fixed"),
        // `%s` in the target is not expanded again.
        ("%s", "%s%s", "%s%s"),
    ];
    for (template, target, expected) in cases {
        assert_eq!(expand_template(template, target), expected);
    }
}

/// A new-style name with distinct keys, and the same with its parameters in another order.
fn spellings() -> impl Strategy<Value = (String, String)> {
    let part = "[a-zA-Z0-9._~%:-]{0,6}";
    let keys = proptest::collection::btree_map("[a-z%0-9]{1,4}", part, 0..6);
    let head = (part, "[a-zA-Z.]{1,8}", "[a-z/%0-9]{0,8}");
    (head, keys)
        .prop_flat_map(|(head, parameters)| {
            let ordered: Vec<(String, String)> = parameters.into_iter().collect();
            (
                Just(head),
                Just(ordered.clone()).prop_shuffle(),
                Just(ordered).prop_shuffle(),
            )
        })
        .prop_map(|((authority, kind, id), one, other)| {
            let spell = |parameters: &[(String, String)]| {
                let pairs: Vec<_> = parameters.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("xdstp://{authority}/{kind}/{id}?{}", pairs.join("&"))
            };
            (spell(&one), spell(&other))
        })
}

proptest! {
    /// S1-36 (part): all spellings of a name have one canonical form.
    #[test]
    fn order_does_not_matter((one, other) in spellings()) {
        prop_assert_eq!(canonical(&one).unwrap(), canonical(&other).unwrap());
    }

    #[test]
    fn canonical_is_idempotent((name, _) in spellings()) {
        let once = canonical(&name).unwrap();
        prop_assert_eq!(canonical(&once).unwrap(), once.clone());
        prop_assert_eq!(authority_of(&once), authority_of(&name));
    }

    /// Any text has a canonical form that does not change again, or is an error.
    #[test]
    fn any_text_is_canonical_or_an_error(name in "xdstp:(//)?[ -~]{0,24}|\\PC{0,12}") {
        if let Ok(once) = canonical(&name) {
            prop_assert_eq!(canonical(&once).unwrap(), once.clone());
        }
        let _ = authority_of(&name);
    }

    /// Any target stays inside the id of the name: it can change neither authority, type nor parameters.
    #[test]
    fn targets_stay_in_the_path(target in "\\PC{0,16}") {
        let name = expand_template("xdstp://a/t/%s?k=v", &target);
        let canonical = canonical(&name).unwrap();
        prop_assert_eq!(&*canonical, &*name);
        prop_assert!(name.ends_with("?k=v"));
        prop_assert_eq!(authority_of(&name), named("a"));
    }
}
