//! The sharing matrix: every owner's part of a shared device against the simulator's log, on the model's own clock.

use std::path::Path;

use warpmeter_core::fact::Sample;
use warpmeter_sharing::SECOND;
use warpmeter_sharing::case::Whose;
use warpmeter_sharing::matrix::{AHEAD, BESIDE, FRACTIONS, TIGHT, UNSEEN, cases};
use warpmeter_sharing::outcome::{Given, outcome};
use warpmeter_sharing::run::{SECONDS, run};
use warpmeter_sharing::table::{Row, markdown, put, rows};

/// Hundredths of a percent.
const POINT: u64 = 100;

/// By how much an owner's use may be off, and its borrowed time.
fn limit(row: &Row) -> Option<u64> {
    Some(match (row.evidence, row.case) {
        ("measured", _) => POINT / 10,
        ("apportioned", _) => 2 * POINT,
        // Nothing says how long kernels are that nobody waits for, nor who runs first under MPS.
        ("inferred", AHEAD | BESIDE) => 10 * POINT,
        ("inferred", TIGHT) => 15 * POINT,
        ("inferred", _) => 5 * POINT,
        _ => return None,
    })
}

#[test]
fn every_owners_part_is_as_right_as_its_evidence_promises_and_the_document_says_how_right() {
    let all: Vec<Row> = cases().iter().flat_map(rows).collect();
    let tables = markdown(&all);
    println!("{tables}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/accuracy.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let wanted = put(&document, &tables).expect("docs/accuracy.md has a place for the tables");
    if std::env::var_os("WARPMETER_BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(document == wanted, "docs/accuracy.md is not current: run `just sharing`");
    }
    for row in &all {
        let Some(limit) = limit(row) else { continue };
        if UNSEEN.contains(&row.case) && row.used > limit {
            // What nobody saw is nobody's: nothing is given to another.
            assert!(row.over <= 2 * POINT && row.nobodys > 0, "{row:?}");
            continue;
        }
        assert!(row.used <= limit && row.borrowed <= limit, "{row:?}");
        assert!(row.contended.is_none_or(|contended| contended <= 5 * POINT), "{row:?}");
    }
}

#[test]
fn who_holds_a_fraction_is_allotted_just_that() {
    let case = cases().into_iter().find(|case| case.name == FRACTIONS).unwrap();
    let run = run(&case);
    for given in [Given::Driver, Given::Probes] {
        let outcome = outcome(&case, &run, given, |_| {});
        for (grant, percent) in case.grants.iter().zip([30, 70]) {
            let part = outcome.parts[&(0, Whose::Pod(grant.to.0, grant.to.1))];
            let due = SECONDS * SECOND / 100 * percent;
            assert!(part.allocated.abs_diff(due) <= SECONDS, "{given:?}: {} of {due} ns", part.allocated);
        }
    }
}

#[test]
fn the_order_of_what_arrives_together_changes_nothing() {
    for case in cases() {
        let run = run(&case);
        for given in [Given::Driver, Given::Probes, Given::Nothing] {
            let straight = outcome(&case, &run, given, |_| {});
            let mut random = 1_u64;
            let shuffled = outcome(&case, &run, given, |batch: &mut [Sample]| {
                for index in (1..batch.len()).rev() {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    batch.swap(index, usize::try_from(random >> 33).unwrap() % (index + 1));
                }
            });
            assert_eq!(straight.view, shuffled.view, "{} {given:?}", case.name);
        }
    }
}

#[test]
fn a_run_is_the_same_whenever_it_is_made() {
    let case = &cases()[2];
    assert_eq!(run(case).facts, run(case).facts);
}
