//! The catalogue as documentation and as a golden list.

use crate::catalogue::{CATALOGUE, Family, families};

/// `docs/metrics.md`.
pub fn markdown() -> String {
    let mut page = String::from(HEAD);
    for group in &CATALOGUE {
        page.extend(["\n## ", group.title, "\n\n", group.about, "\n\n"]);
        page += "| metric | kind | unit | level | labels | meaning |\n|---|---|---|---|---|---|\n";
        page.extend(group.families.iter().map(|family| {
            let (kind, unit, level) = (family.kind.label(), family.unit.label(), family.level.label());
            let labels = labels(family, "`");
            format!("| `{}` | {kind} | {unit} | {level} | {labels} | {} |\n", family.name, family.help)
        }));
    }
    page
}

/// One line a family: what is an API. Compared with `exporter/catalogue.golden`.
pub fn golden() -> String {
    let line = |family: &Family| {
        let (kind, level) = (family.kind.label(), family.level.label());
        format!("{} {kind} {level} {{{}}}\n", family.name, labels(family, ""))
    };
    families().map(line).collect()
}

fn labels(family: &Family, quote: &str) -> String {
    family.labels.iter().map(|label| format!("{quote}{label}{quote}")).collect::<Vec<_>>().join(", ")
}

const HEAD: &str = "\
# Metrics

Generated from `exporter/src/catalogue.rs`; `WARPMETER_BLESS=1 cargo test -p warpmeter-exporter` rewrites it.

Names and labels are an API: they change only with a deprecated release between.

* What is not known has no series. A 0 means zero.
* No family holds a total beside its parts: `sum` over any family means something.
* Counters start at 0 when the daemon starts and are never restored; use `rate` and `increase`.
* Text is made at most once a window (1 s by default) from one consistent view: families of one scrape agree exactly,
  up to the rounding of 64-bit floats.
* When the daemon's pipeline stands still, `/metrics` answers 503 instead of repeating old figures.
* `level` is the least `[metrics] level` that exports a family: `minimal`, `standard` (the default), `full`.
";
