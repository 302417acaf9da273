//! Expressions over labels: what they mean, what is refused, and that no text harms the process.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use refit_types::{Expression, Labels};

const ALLOWED: &str = "expected labels[\"NAME\"] or labels.NAME compared with texts by ==, !=, in, startsWith, \
    endsWith or contains, has(labels.NAME), \"NAME\" in labels, true and false, joined by &&, ||, ! and parentheses";

fn evaluate(source: &str, labels: &str) -> Result<bool, String> {
    let expression: Expression = source.parse().unwrap_or_else(|error| panic!("{error}"));
    let labels: Labels = labels.parse().unwrap();
    let answer = expression.evaluate(&labels);
    assert_eq!(expression.holds(&labels), answer == Ok(true), "{source}");
    answer.map_err(|unanswered| unanswered.to_string())
}

#[test]
fn expressions_mean_what_they_mean_in_cel() {
    let labels = "environment=staging,zone=eu-1/a,arch=x86_64";
    for (source, answer) in [
        (r#"labels["environment"] == "staging""#, true),
        (r#"labels["environment"]=="staging""#, true),
        ("labels['environment'] == 'staging'", true),
        (r#"labels.environment != "staging""#, false),
        (r#""staging" == labels.environment"#, true),
        (r#"labels["zone"] == labels["arch"]"#, false),
        (r#"labels.environment in ["dev", "staging"]"#, true),
        (r#"labels.environment in []"#, false),
        (r#""zone" in labels"#, true),
        (r#"!("region" in labels)"#, true),
        (r#"has(labels.arch) && !has(labels.region)"#, true),
        (r#"labels["zone"].startsWith("eu-") && labels.zone.endsWith("/a")"#, true),
        (r#"labels.arch.contains("86")"#, true),
        (r#"labels.arch.contains("arm")"#, false),
        ("true", true),
        ("!true || false", false),
        ("!!true", true),
        (r#"(labels.zone == "x" || labels.arch == "x86_64") && true"#, true),
        (r#"labels.zone == "x" || labels.arch == "x86_64" && false"#, false),
        (r#"labels["zone"] == "\x65u-1/a""#, true),
    ] {
        assert_eq!(evaluate(source, labels), Ok(answer), "{source}");
    }
}

#[test]
fn an_absent_label_is_no_match_unless_the_rest_settles_it() {
    let absent = || Err("there is no label \"region\"".to_owned());
    for (source, answer) in [
        (r#"labels.region == "eu""#, absent()),
        (r#"labels.region != "eu""#, absent()),
        (r#"!(labels.region == "eu")"#, absent()),
        (r#"labels["region"] in ["eu"]"#, absent()),
        (r#"labels.region.startsWith("e")"#, absent()),
        (r#"labels.region == "eu" && true"#, absent()),
        (r#"labels.region == "eu" || false"#, absent()),
        (r#"labels.region == "eu" && false"#, Ok(false)),
        (r#"false && labels.region == "eu""#, Ok(false)),
        (r#"labels.region == "eu" || true"#, Ok(true)),
        (r#"labels.zone == "a" || labels.region == "eu""#, Ok(true)),
        (r#"has(labels.region) && labels.region == "eu""#, Ok(false)),
        (r#"!("region" in labels) || labels.region == "eu""#, Ok(true)),
        (r#"labels.region == "eu" && labels.other == "x""#, absent()),
    ] {
        assert_eq!(evaluate(source, "zone=a"), answer, "{source}");
    }
}

#[test]
fn anything_else_is_refused_with_what_is_allowed() {
    for (source, problem) in [
        ("", "it is empty"),
        ("labels.a", "a text is neither true nor false"),
        (r#"labels["a"]"#, "a text is neither true nor false"),
        (r#""a""#, "a text is neither true nor false"),
        ("labels", "labels stands without a name"),
        ("env == \"x\"", "\"env\" is not known here"),
        ("labels.a.b == \"x\"", "a label or a text is compared with something else"),
        ("labels.a == 1", "a label or a text is compared with something else"),
        ("labels[1] == \"x\"", "the name of a label is not a text"),
        ("env[\"x\"] == \"x\"", "only labels have names in brackets"),
        ("has(env.x)", "has() asks for something other than a label"),
        ("labels.x in labels", "the name before \"in labels\" is not a text"),
        ("labels.a.matches(\"x\")", "\"matches\" is not known here, or not used like this"),
        ("size(labels)", "\"size\" is not known here, or not used like this"),
        ("labels.a + \"x\" == \"y\"", "at character 10: '+' has no place in it"),
        ("true ? true : false", "at character 6: '?' has no place in it"),
        ("labels.a == r\"x\"", "at character 14: a text in quotes directly behind something else"),
        ("labels.a == \"\"\"x\"\"\"", "at character 15: a text in quotes directly behind something else"),
        ("labels.a == \"x", "at character 13: a text in quotes has no end"),
        ("labels.é == \"x\"", "at character 8: 'é' has no place in it"),
    ] {
        let error = source.parse::<Expression>().unwrap_err().to_string();
        assert_eq!(error, format!("{source:?} is not an expression over labels: {problem}; {ALLOWED}"));
    }
    let error = "labels.a == ".parse::<Expression>().unwrap_err().to_string();
    assert!(
        error.starts_with("\"labels.a == \" is not an expression over labels: at character 1"),
        "{error}"
    );
    for macros in ["labels.all(x, true)", "labels.exists(x, x == \"y\")", "[\"a\"].map(x, x) == [\"a\"]"] {
        assert!(macros.parse::<Expression>().is_err(), "{macros}");
    }
}

/// Texts of the longest size that make a parser recurse.
fn hostile() -> Vec<String> {
    let repeated = |part: &str| part.repeat(1024 / part.len());
    let mut texts: Vec<String> =
        ["(", "[", "{", "!", "-", "a.", "a[", "a(", "a==", "a in ", "!(", "labels[", "has("]
            .map(repeated)
            .into();
    texts.push(format!("{}true{}", "(".repeat(510), ")".repeat(510)));
    texts.push(format!("{}true", "!".repeat(1020)));
    texts.push(format!("{}a", repeated("a==")));
    texts.push(format!("labels{}", ".a".repeat(500)));
    texts.push(format!("labels{}", "[a]".repeat(330)));
    texts.push(format!("true{}", "&&true".repeat(170)));
    texts.push(format!("true{}", "&&true||true".repeat(85)));
    texts.push(format!("labels.a in [{}\"x\"]", "\"x\",".repeat(250)));
    texts.push(format!("\"{}\" == \"x\"", "((((".repeat(250)));
    texts
}

#[test]
fn a_hostile_text_takes_little_stack() {
    let parse = || hostile().iter().map(|text| text.parse::<Expression>().is_ok()).collect::<Vec<_>>();
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(parse).unwrap();
    let accepted = thread.join().unwrap();
    assert_eq!(accepted.iter().filter(|accepted| **accepted).count(), 4, "{accepted:?}");
    let deep = format!("{}true{}", "(".repeat(30), ")".repeat(30)).parse::<Expression>().unwrap_err();
    assert!(deep.to_string().contains("its parts stand more than 24 deep in each other"), "{deep}");
    let long = format!("labels.a == \"{}\"", "x".repeat(1024)).parse::<Expression>().unwrap_err();
    assert!(long.to_string().contains("longer than the 1024 bytes that are allowed"), "{long}");
}

fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "labels",
        "labels.a",
        "[",
        "]",
        "(",
        ")",
        "\"a\"",
        "'b'",
        "\"\\",
        "\\u12",
        "\"\\777\"",
        "==",
        "!=",
        "in",
        "&&",
        "||",
        "!",
        "has(",
        "true",
        "false",
        ".",
        ",",
        "startsWith",
        " ",
        "1",
        "0x",
        "1e",
        "1u",
        "null",
        "é",
        "`a`",
        "{",
        "}",
        "?",
        ":",
        "-",
        "//",
        "\n",
        "\"\\x\"",
        "\"\\U0011FFFF\"",
        "\"\\ud800\"",
        "package",
        "_",
    ]);
    prop::collection::vec(word, 0..300).prop_map(|words| {
        let text = words.concat();
        text.chars().take(1000).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in prop_oneof!["\\PC{0,700}", "(?s).{0,500}", words(), "[ -~]{0,2048}"]) {
        if let Ok(expression) = text.parse::<Expression>() {
            let _ = expression.evaluate(&"a=b".parse().unwrap());
            prop_assert_eq!(expression.source(), text);
        }
    }

    #[test]
    fn short_texts_of_its_own_signs_do_not_panic(
        parts in prop::collection::vec(prop::sample::select(vec![
            "labels", ".a", "[\"a\"]", "(", ")", "\"x\"", "==", "!=", " in ", "&&", "||", "!", "has(labels.a)",
            "true", "[", "]", ",", "\"\\q\"", "\"\\x\"", "\"\\ud800\"", "1", "1.", ".1", "in",
        ]), 0..9),
    ) {
        if let Ok(expression) = parts.concat().parse::<Expression>() {
            let _ = expression.evaluate(&"a=b".parse().unwrap());
        }
    }
}
