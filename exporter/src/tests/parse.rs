//! A strict reader of the exposition format, written from its description and sharing nothing with the encoder.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) family: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Series {
    pub(super) fn label(&self, name: &str) -> &str {
        &self.labels[name]
    }
}

/// Reads `text`; panics on anything that a scraper might refuse, and on names that are not in lower case.
pub(super) fn exposition(text: &str) -> Vec<Series> {
    let series = any_names(text);
    for one in &series {
        let mut names = std::iter::once(&one.name).chain(one.labels.keys());
        assert!(names.all(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase())), "{one:?}");
    }
    series
}

/// Reads `text`; panics on anything that a scraper might refuse.
pub(super) fn any_names(text: &str) -> Vec<Series> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line ends");
    let mut all = Vec::new();
    let (mut families, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut family = String::new();
    let mut parts: &[&str] = &[""];
    // Only line feeds end lines: `str::lines` would take carriage returns away.
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help text");
            assert!(!help.is_empty());
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            name.clone_into(&mut family);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert_eq!(name, family, "the type follows the help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            parts = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        } else {
            let series = Series { family: family.clone(), ..series(line) };
            let part = series.name.strip_prefix(&family).expect("series stand with their family");
            assert!(parts.contains(&part), "{part} of {family}");
            assert!(series.value.is_finite());
            let key = format!("{}{:?}", series.name, series.labels);
            assert!(seen.insert(key.clone()), "{key} comes twice");
            all.push(series);
        }
    }
    all
}

fn series(line: &str) -> Series {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{name:?}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label) && !label.starts_with("__"), "{label:?}");
            let (value, after) = quoted(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{label} comes twice");
            if let Some(after) = after.strip_prefix(',') {
                rest = after;
            } else {
                rest = after.strip_prefix('}').expect("the end of labels");
                break;
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("a space before the value");
    assert!(value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-'), "{value:?}");
    Series { family: String::new(), name: name.to_owned(), labels, value: value.parse().expect("a number") }
}

/// A label value up to its closing quote, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                other => panic!("an escape of {other:?}"),
            },
            c => value.push(c),
        }
    }
    panic!("a label value does not end");
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
