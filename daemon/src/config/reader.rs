//! Walking a TOML document so that one problem does not hide the next.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Something wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Problem {
    /// A problem of `text` at the byte `offset`.
    pub(crate) fn at(text: &str, offset: usize, message: String) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self { line, column, message }
    }

    /// A problem that the parser found in `text`; without a place of its own it is at `otherwise`.
    pub(crate) fn of(text: &str, error: &toml::de::Error, otherwise: usize) -> Self {
        Self::at(text, error.span().map_or(otherwise, |span| span.start), error.message().to_owned())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// A value, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its line, from 1.
    pub line: usize,
    /// Its column in characters, from 1.
    pub column: usize,
}

impl<T> Placed<T> {
    /// Something wrong with it.
    pub fn problem(&self, message: String) -> Problem {
        Problem { line: self.line, column: self.column, message }
    }
}

/// One table of the document.
#[derive(Debug)]
pub(super) struct Section<'t> {
    text: &'t str,
    name: String,
    /// Where it is in the text.
    at: usize,
    table: &'t DeTable<'t>,
    problems: Vec<Problem>,
}

/// The names of all sections, for the message about an unknown one.
const SECTIONS: &str = "http, nvidia, host, pods, kubelet, names, labels, control, window, allocation, bpf, cupti, dcgm, metrics, price, peak";

/// Parses `text` and hands each table to `section`, which says whether it knows its name.
pub(super) fn read(
    text: &str,
    mut section: impl FnMut(&str, &mut Section<'_>) -> bool,
) -> Result<(), Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<Problem> = errors.iter().map(|error| Problem::of(text, error, 0)).collect();
    for (name, value) in document.get_ref() {
        let DeValue::Table(table) = value.get_ref() else {
            let message = format!("`{}` is not a section; sections are: {SECTIONS}", name.get_ref());
            problems.push(Problem::at(text, name.span().start, message));
            continue;
        };
        let (at, title) = (name.span().start, name.get_ref().to_string());
        let mut reader = Section { text, name: title, at, table, problems: Vec::new() };
        if !section(name.get_ref(), &mut reader) {
            let message = format!("unknown section `[{}]`; sections are: {SECTIONS}", name.get_ref());
            problems.push(Problem::at(text, name.span().start, message));
        }
        problems.append(&mut reader.problems);
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

impl<'t> Section<'t> {
    /// Hands each key to `key`, which says whether it knows it. Always true: the section itself is known.
    pub(super) fn read(&mut self, known: &[&str], mut key: impl FnMut(&mut Self, &str) -> bool) -> bool {
        let table = self.table;
        for name in table.keys() {
            if !key(self, name.get_ref()) {
                let message = format!(
                    "unknown key `{}` in [{}]; keys are: {}",
                    name.get_ref(),
                    self.name,
                    known.join(", ")
                );
                self.problem(name.span().start, message);
            }
        }
        true
    }

    /// Sets `place` to the value of `key`, or notes why not. Always true: the key is known.
    pub(super) fn set<T>(
        &mut self,
        key: &str,
        place: &mut T,
        parse: impl Fn(&DeValue<'t>) -> Result<T, String>,
    ) -> bool {
        if let Some(value) = self.value(key) {
            match parse(value.get_ref()) {
                Ok(parsed) => *place = parsed,
                Err(wanted) => {
                    self.problem(value.span().start, format!("`{key}` in [{}]: {wanted}", self.name));
                }
            }
        }
        true
    }

    /// The same for a value that may be absent.
    pub(super) fn set_some<T>(
        &mut self,
        key: &str,
        place: &mut Option<T>,
        parse: impl Fn(&DeValue<'t>) -> Result<T, String>,
    ) -> bool {
        self.set(key, place, |value| parse(value).map(Some))
    }

    /// Whether `key` is written, be it right or wrong.
    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Notes that the value of `key` does not go with others, if it is written.
    pub(super) fn refuse(&mut self, key: &str, message: &str) {
        if let Some(value) = self.value(key) {
            self.problem(value.span().start, format!("`{key}` in [{}]: {message}", self.name));
        }
    }

    /// The same for a value whose place is wanted later.
    pub(super) fn set_placed<T>(
        &mut self,
        key: &str,
        target: &mut Option<Placed<T>>,
        parse: impl Fn(&DeValue<'t>) -> Result<T, String>,
    ) -> bool {
        let mut value = None;
        self.set_some(key, &mut value, parse);
        let offset = self.value(key).map_or(0, |value| value.span().start);
        let Problem { line, column, .. } = Problem::at(self.text, offset, String::new());
        *target = value.map(|value| Placed { value, line, column });
        true
    }

    /// Whether the value of `key` is a table.
    pub(super) fn is_table(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| matches!(value.get_ref(), DeValue::Table(_)))
    }

    /// Reads the table that is the value of `key`. Always true: the key is known.
    pub(super) fn within(&mut self, key: &str, read: impl FnOnce(&mut Section<'t>)) -> bool {
        let Some(value) = self.value(key) else { return true };
        if let DeValue::Table(table) = value.get_ref() {
            let (name, at) = (format!("{}.{key}", self.name), value.span().start);
            let mut inner = Section { text: self.text, name, at, table, problems: Vec::new() };
            read(&mut inner);
            self.problems.append(&mut inner.problems);
        }
        true
    }

    /// Notes that `key` is missing, if it is.
    pub(super) fn require(&mut self, key: &str) {
        if self.value(key).is_none() {
            self.problem(self.at, format!("`{key}` is missing in [{}]", self.name));
        }
    }

    /// Notes what is wrong with the value of `key`.
    pub(super) fn wrong(&mut self, key: &str, message: &str) {
        let at = self.value(key).map_or(self.at, |value| value.span().start);
        self.problem(at, message.to_owned());
    }

    fn value(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    fn problem(&mut self, offset: usize, message: String) {
        self.problems.push(Problem::at(self.text, offset, message));
    }
}
