//! The matrix as a table, and its place in a document.

use std::collections::BTreeMap;
use std::fmt::Write;

use warpmeter_core::view::Evidence;

use crate::SECOND;
use crate::case::Case;
use crate::outcome::{Given, Outcome, Part, outcome};
use crate::run::{SECONDS, run};

const BEGIN: &str = "<!-- sharing: generated -->\n";
const END: &str = "<!-- sharing: end -->\n";

/// A case by one kind of evidence. Errors are in hundredths of a percent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The case.
    pub case: &'static str,
    /// How its use is known.
    pub evidence: &'static str,
    /// How far an owner's use is off at most, of the time that the device ran.
    pub used: u64,
    /// By how much an owner gets more than its due at most.
    pub over: u64,
    /// How far an owner's borrowed time is off at most, of the device's time.
    pub borrowed: u64,
    /// How far the time that an owner waited for others is off at most, of the device's time; none where no probe says.
    pub contended: Option<u64>,
    /// What is nobody's, of the time that the device ran.
    pub nobodys: u64,
}

/// Runs a case by each kind of evidence that there is for it.
pub fn rows(case: &Case) -> Vec<Row> {
    let run = run(case);
    let mut found: Vec<Row> = Vec::new();
    for given in [Given::Driver, Given::Probes, Given::Nothing] {
        let outcome = outcome(case, &run, given, |_| {});
        assert_eq!(outcome.view.conservation_error, 0, "{} {given:?}", case.name);
        let row = row(case.name, given, &outcome);
        // Where the driver does not say, the probes are all there is.
        if !found.iter().any(|other| other.evidence == row.evidence) {
            found.push(row);
        }
    }
    found
}

fn row(case: &'static str, given: Given, outcome: &Outcome) -> Row {
    let share = |part: u64, whole: u64| (part * 10_000 + whole / 2).checked_div(whole).unwrap_or(0);
    let all = |of: &dyn Fn(usize, &Part) -> u64| {
        outcome.parts.iter().map(|((device, _), part)| of(*device, part)).max().unwrap_or(0)
    };
    let elapsed = |device: usize| {
        let gpu = outcome.view.gpus.iter().flat_map(|gpu| &gpu.devices).nth(device);
        gpu.map_or(SECONDS * SECOND, |device| device.states.iter().sum())
    };
    let off = |(counted, truth): (u64, u64)| counted.abs_diff(truth);
    let contended = |device: usize, part: &Part| share(off(part.contended), elapsed(device));
    let nobodys = outcome.nobodys.iter().zip(&outcome.ran).map(|(nobodys, ran)| share(*nobodys, *ran));
    Row {
        case,
        evidence: evidence(outcome),
        used: all(&|device, part| share(off(part.used), outcome.ran[device])),
        over: all(&|device, part| share(part.used.0.saturating_sub(part.used.1), outcome.ran[device])),
        borrowed: all(&|device, part| share(off(part.borrowed), elapsed(device))),
        contended: (given != Given::Nothing).then(|| all(&contended)),
        nobodys: nobodys.max().unwrap_or(0),
    }
}

/// The weakest that any of the use rests on.
fn evidence(outcome: &Outcome) -> &'static str {
    let of = |kind: Evidence| outcome.evidence.iter().any(|amounts| amounts[kind as usize] > 0);
    let found = Evidence::ALL.into_iter().rev().find(|kind| of(*kind));
    if outcome.parts.values().all(|part| part.used.0 == 0) {
        return "none";
    }
    found.map_or("none", Evidence::label)
}

/// The tables as Markdown.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(BEGIN);
    let points = |value: u64| format!("{}.{:02}", value / 100, value % 100);
    let mut by_evidence: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let place = Evidence::ALL.iter().position(|kind| kind.label() == row.evidence).unwrap_or(9);
        by_evidence.entry(place).or_default().push(row);
    }
    text += "| evidence | cases | use: middle | worst | too much: worst |\n|---|---:|---:|---:|---:|\n";
    for rows in by_evidence.values() {
        let mut errors: Vec<u64> = rows.iter().map(|row| row.used).collect();
        errors.sort_unstable();
        let (middle, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
        let (evidence, over) = (rows[0].evidence, rows.iter().map(|row| row.over).max().unwrap_or(0));
        let [middle, worst, over] = [middle, worst, over].map(points);
        writeln!(text, "| `{evidence}` | {} | {middle} | {worst} | {over} |", rows.len()).unwrap();
    }
    text += "\n| case | evidence | use | too much | borrowed | contended | nobody's |\n|---|---|---:|---:|---:|---:|---:|\n";
    for row in rows {
        let contended = row.contended.map_or_else(|| "–".to_owned(), points);
        writeln!(
            text,
            "| {} | `{}` | {} | {} | {} | {contended} | {} |",
            row.case,
            row.evidence,
            points(row.used),
            points(row.over),
            points(row.borrowed),
            points(row.nobodys),
        )
        .unwrap();
    }
    text + END
}

/// `document` with `tables` in their place; nothing if it has none.
pub fn put(document: &str, tables: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{tables}{after}"))
}
