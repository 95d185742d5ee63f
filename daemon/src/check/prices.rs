//! Findings about prices: what each GPU costs, who says so, and what would be better.

use warpmeter_core::price::{Date, Origin, Quote};
use warpmeter_core::view::View;

use super::{Findings, Mark};
use crate::config::Config;
use crate::prices::PriceSource;

const SECTION: &str = "prices";

/// Nanoseconds in a day.
const DAY: u64 = 86_400_000_000_000;

/// From how many days on a figure is called old, as the alert does.
const OLD: u64 = 90;

pub(super) fn prices(config: &Config, view: &View, findings: &mut Findings) {
    for (path, problem) in PriceSource::new(config.price.clone(), &view.node).problems() {
        let remedy = "mend it: until then nothing of this file is used";
        findings.add(SECTION, Mark::Missing, format!("{path}: {problem}"), remedy);
    }
    for (model, quote, count) in kinds(view) {
        let gpus = if count == 1 { model.to_owned() } else { format!("{count} × {model}") };
        let Some(quote) = quote else {
            let what = format!("{gpus} has no price: its time is counted, its cost is not");
            let why = &view.price_missing;
            let what = if why.is_empty() { what } else { format!("{what} ({why})") };
            let remedy = format!("set one under [price], such as {} = 2.95", word(model));
            findings.add(SECTION, Mark::Missing, what, remedy);
            continue;
        };
        let what = format!("{gpus}: {} {} an hour, from {quote}", quote.price, view.currency);
        judge(quote, view.wall, what, &format!("[price] {} = …, node = … or file", word(model)), findings);
    }
    if let Some(quote) = &view.energy {
        let what = format!("energy: {} {} a kilowatt-hour, from {quote}", quote.price, view.currency);
        judge(quote, view.wall, what, "[price] power_per_kwh", findings);
    }
}

/// Adds a figure, with what is doubtful about it and where it is set.
fn judge(quote: &Quote, wall: u64, what: String, set: &str, findings: &mut Findings) {
    let age = quote.as_of.map(|date: Date| date.age(wall)).filter(|age| *age > OLD);
    let (what, remedy) = match (quote.origin, age) {
        (Origin::BuiltIn, age) => {
            let old = age.map_or_else(String::new, |age| format!(" of {age} days ago"));
            let remedy = format!("that is a list price{old}: set what you pay: {set}");
            (what, remedy)
        }
        (_, Some(age)) => {
            (format!("{what}, which is {age} days ago"), format!("see whether it still holds: {set}"))
        }
        (_, None) if quote.as_of.is_some_and(|date| u64::from(date.days()) > wall / DAY + 1) => {
            (format!("{what}, which is yet to come"), format!("give the day on which it was true: {set}"))
        }
        // A figure without a day is never called old: who wants to hear of that gives it one.
        (_, None) if quote.as_of.is_none() => {
            let remedy = "give its day to hear when it is old: { price = …, as_of = \"…\", source = \"…\" }";
            return findings.add(SECTION, Mark::Works, what, remedy);
        }
        (_, None) => return findings.add(SECTION, Mark::Works, what, ""),
    };
    findings.add(SECTION, Mark::Degraded, what, remedy);
}

/// Each model with each of its figures, and how many GPUs have it.
fn kinds(view: &View) -> Vec<(&str, Option<&Quote>, u32)> {
    let mut kinds: Vec<(&str, Option<&Quote>, u32)> = Vec::new();
    for gpu in &view.gpus {
        let (model, quote) = (gpu.gpu.model.as_str(), gpu.quote.as_ref());
        match kinds.iter_mut().find(|kind| (kind.0, kind.1) == (model, quote)) {
            Some((.., count)) => *count += 1,
            None => kinds.push((model, quote, 1)),
        }
    }
    kinds
}

/// The word of a product name that a price would be set by.
fn word(model: &str) -> &str {
    let words = model.split(|c: char| !c.is_ascii_alphanumeric());
    words.into_iter().find(|word| word.bytes().any(|byte| byte.is_ascii_digit())).unwrap_or("default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_model_is_the_first_with_a_digit() {
        for (model, expected) in [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("Tesla T4", "T4"),
            ("NVIDIA A100-SXM4-80GB", "A100"),
            ("GPU", "default"),
        ] {
            assert_eq!(word(model), expected);
        }
    }

    #[test]
    fn a_figure_is_doubted_for_its_age_and_for_being_built_in() {
        let quote = |origin, as_of: Option<&str>| Quote {
            origin,
            as_of: as_of.map(|date| date.parse().unwrap()),
            ..Quote::configured(warpmeter_core::price::Price(1))
        };
        let wall = u64::from("2026-11-30".parse::<Date>().unwrap().days()) * 86_400_000_000_000;
        for (origin, as_of, mark) in [
            (Origin::Configuration, None, Mark::Works),
            (Origin::File, Some("2026-09-01"), Mark::Works),
            (Origin::File, Some("2026-08-31"), Mark::Degraded),
            (Origin::BuiltIn, Some("2026-11-30"), Mark::Degraded),
            (Origin::File, Some("2026-12-01"), Mark::Works),
            (Origin::File, Some("2029-01-01"), Mark::Degraded),
        ] {
            let mut findings = Findings::default();
            judge(&quote(origin, as_of), wall, "x".into(), "y", &mut findings);
            assert_eq!(findings.lines[0].1, mark, "{origin:?} {as_of:?}");
        }
    }
}
