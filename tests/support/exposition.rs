//! A strict reader of the exposition format, which shares nothing with the encoder.

use std::collections::{BTreeMap, BTreeSet};

/// A series and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// All series of one scrape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition {
    /// In their order.
    pub series: Vec<Series>,
}

/// Labels that a series must have.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Series {
    /// A label's value; empty if there is none.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    fn fits(&self, name: &str, labels: Labels<'_>) -> bool {
        self.name == name && labels.iter().all(|(label, value)| self.label(label) == *value)
    }
}

impl Exposition {
    /// Reads `text`; anything that a scraper might refuse is an error.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.ends_with('\n') {
            return Err("the last line does not end".into());
        }
        let mut series = Vec::new();
        let (mut families, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut family = String::new();
        let mut parts: &[&str] = &[""];
        for line in text.split_terminator('\n') {
            if let Some(help) = line.strip_prefix("# HELP ") {
                help.split(' ').next().unwrap_or_default().clone_into(&mut family);
                if !families.insert(family.clone()) {
                    return Err(format!("{family} comes twice"));
                }
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let Some((_, kind)) = kind.split_once(' ').filter(|(name, _)| *name == family) else {
                    return Err(format!("no type of {family}: {line}"));
                };
                parts = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            } else {
                let one = parse_line(line).ok_or_else(|| format!("not a series: {line}"))?;
                let part = one.name.strip_prefix(&family);
                if !part.is_some_and(|part| parts.contains(&part)) || !one.value.is_finite() {
                    return Err(format!("in the family {family}: {line}"));
                }
                if !seen.insert((one.name.clone(), one.labels.clone())) {
                    return Err(format!("twice: {line}"));
                }
                series.push(one);
            }
        }
        Ok(Self { series })
    }

    /// Every series of this name with these labels.
    pub fn all<'a>(&'a self, name: &'a str, labels: Labels<'a>) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |series| series.fits(name, labels))
    }

    /// The sum of their values; 0 if there are none.
    pub fn sum(&self, name: &str, labels: Labels<'_>) -> f64 {
        self.all(name, labels).map(|series| series.value).sum()
    }

    /// The value of the first of them.
    pub fn get(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        self.all(name, labels).next().map(|series| series.value)
    }
}

fn parse_line(line: &str) -> Option<Series> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.insert(label.to_owned(), value).is_none().then_some(())?;
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None => break rest = after.strip_prefix('}')?,
            }
        }
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    Some(Series { name: name.to_owned(), labels, value })
}

/// A label's value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => value.push(match characters.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            (_, c) => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scraper_would_refuse_is_refused() {
        let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1,\\\"\\\\\\n\"} 2.5\n";
        let read = Exposition::parse(good).unwrap();
        assert_eq!(read.get("a_total", &[("x", "1,\"\\\n")]), Some(2.5));
        let bad =
            ["", "a 1\n", "# HELP a A.\na 1\na 1\n", "# HELP a A.\na{x=\"\\q\"} 1\n", "# HELP a A.\na 1"];
        for text in bad.into_iter().filter(|text| !text.is_empty()) {
            assert!(Exposition::parse(text).is_err(), "{text}");
        }
    }
}
