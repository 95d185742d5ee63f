//! The sources of prices, good and bad.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use warpmeter_core::fact::{Discard, Fact, HealthState};
use warpmeter_core::price::{Capacity, Origin, Price, Prices, RowKind};

use super::file::{PriceFile, parse};
use super::{PriceOptions, PriceSource, labels};

/// OpenCost's own header.
const HEADER: &str =
    "EndTimestamp,InstanceID,Region,AssetClass,InstanceIDField,InstanceType,MarketPriceHourly,Version";

const H100: &str = "NVIDIA H100 80GB HBM3";

fn file(rows: &str) -> PriceFile {
    parse(format!("{HEADER}\n{rows}").as_bytes(), "USD").unwrap()
}

fn problems(text: &str) -> Vec<String> {
    parse(text.as_bytes(), "USD").unwrap_err()
}

#[test]
fn a_file_of_opencost_is_read_as_it_is() {
    let file = file(
        "2019-04-17 23:34:22 UTC,gke-pool-1-91dc432d-cg69,,node,metadata.name,,0.13370000049,\n\
         2019-04-17 23:34:22 UTC,gce://p/z/i,eu-1,node,spec.providerID,n1-standard-2,1.337,v1\n\
         4/17/19 23:34,Quadro_RTX_4000,,gpu,gpu.nvidia.com/class,,0.75,\n\
         ,g4,,gpulabel,nodegroup,,0.5,\n\
         ,h100,,node,metadata.labels.nodegroup,,8,\n\
         ,x,,node,metadata.annotations.a,,1,\n\
         ,pvc-1,,pv,spec.volumeHandle,,not read,\n\
         ,,,node,,p5.48xlarge,40,\n",
    );
    assert_eq!((file.rows.len(), file.skipped), (6, 2));
    let first = &file.rows[0];
    assert_eq!(
        (first.kind, first.quote.price, first.quote.origin),
        (RowKind::Node, Price(133_700), Origin::File)
    );
    assert_eq!(first.quote.as_of.unwrap().to_string(), "2019-04-17");
    assert_eq!((&*first.quote.source, first.quote.capacity), ("file", None));
    assert_eq!(file.rows[1].region, "eu-1");
    assert_eq!((file.rows[2].kind, file.rows[2].quote.as_of), (RowKind::Gpu, None));
}

#[test]
fn columns_are_found_by_name_and_ours_may_be_among_them() {
    let text = "\u{feff}gpucount,CapacityType,MarketPriceHourly,AssetClass,InstanceType,Source,AsOf,Currency\n\
                # what we pay\n\n\
                8,spot,20.5,node,p5.48xlarge,\"contract 7, annex\",2026-11-01,USD\n";
    let file = parse(text.as_bytes(), "USD").unwrap();
    let row = &file.rows[0];
    assert_eq!(
        (row.gpus, row.quote.capacity, row.quote.price),
        (Some(8), Some(Capacity::Spot), Price(20_500_000))
    );
    assert_eq!(row.quote.to_string(), "contract 7, annex (price file), spot, as of 2026-11-01");
}

#[test]
fn every_bad_row_is_told_by_its_line_and_reason() {
    let header =
        "AssetClass,InstanceID,InstanceIDField,MarketPriceHourly,Currency,AsOf,CapacityType,GpuCount";
    let text = format!(
        "{header}\n\
         node,a,metadata.name,1,,,,\r\n\
         disk,a,metadata.name,1,,,,\n\
         node,b,metadata.name,-1,,,,\n\
         node,c,name,1,,,,\n\
         # as a comment\n\
         node,,,1,,,,\n\
         gpu,H100,,1,,,,\n\
         node,d,metadata.name,1,EUR,yesterday,cheap,0\n\
         node,e,metadata.name,1e3,,,\n\
         node,A,metadata.name,2,,,,\n"
    );
    let found = problems(&text);
    let starts = [
        "line 3: AssetClass \"disk\"",
        "line 4: MarketPriceHourly \"-1\"",
        "line 5: InstanceIDField \"name\"",
        "line 7: a node row needs",
        "line 8: a gpu row needs",
        "line 9: Currency \"EUR\" is not USD",
        "line 9: CapacityType \"cheap\"",
        "line 9: AsOf \"yesterday\"",
        "line 9: GpuCount \"0\"",
        "line 10: it has 7 fields, and the header has 8",
        "line 11: line 2 says otherwise",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}: {start}");
    }
}

#[test]
fn a_header_that_cannot_be_right_is_told() {
    assert!(problems("")[0].contains("no header"));
    let found = problems("AssetClas,MarketPriceHourly,MarketPriceHourly\nx,1,1\n");
    assert!(found[0].contains("unknown column \"AssetClas\"") && found[1].contains("twice"), "{found:?}");
    assert!(found[2].contains("no column AssetClass"), "{found:?}");
    let bytes = [HEADER.as_bytes(), b"\n,a,,node,metadata.name,,1,\xff\n"].concat();
    assert_eq!(parse(&bytes, "USD").unwrap_err(), ["line 2: it is not UTF-8"]);
}

#[test]
fn of_very_many_problems_the_first_are_told_and_the_rest_counted() {
    let mut text = String::from("AssetClass,MarketPriceHourly\n");
    for _ in 0..1500 {
        text.push_str("x,1\n");
    }
    let found = problems(&text);
    assert_eq!((found.len(), found[1000].as_str()), (1001, "and 500 more"));
}

#[test]
fn labels_are_read_in_both_forms() {
    let text = "node.kubernetes.io/instance-type=\"p5.48xlarge\"\n# by hand\nkarpenter.sh/capacity-type=spot\nempty=\"\"\n\n";
    let expected = [
        ("empty", ""),
        ("karpenter.sh/capacity-type", "spot"),
        ("node.kubernetes.io/instance-type", "p5.48xlarge"),
    ];
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    assert_eq!(labels::parse(text), Ok(expected));
    let found = labels::parse("a=1\nb\nc=\"x\ny=é\na=2\n").unwrap_err();
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[0].starts_with("line 2:") && found[3] == "line 5: a is there twice", "{found:?}");
}

/// A source over files of a directory.
struct Files {
    directory: tempfile::TempDir,
    source: PriceSource,
    writes: u64,
}

impl Files {
    fn new(change: impl FnOnce(&Path, &mut PriceOptions)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = PriceOptions::default();
        change(directory.path(), &mut options);
        Self { source: PriceSource::new(options, "n1"), directory, writes: 0 }
    }

    fn write(&mut self, name: &str, text: &str) {
        self.writes += 1;
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        // The clock of files may be coarser than this test.
        let later = SystemTime::now() + Duration::from_secs(self.writes);
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
    }

    /// The facts of a round, and the price of an H100 by the last of them.
    fn round(&mut self) -> (Vec<Fact>, Option<u64>, HealthState) {
        let mut facts = Vec::new();
        self.source.poll(&mut facts);
        assert!(matches!(facts.pop(), Some(Fact::Poll { .. })));
        (facts, price(self.source.prices()), self.source.health().state)
    }
}

fn price(prices: &Prices) -> Option<u64> {
    prices.of(H100, 1).map(|rate| rate.price.0)
}

fn csv(price: &str) -> String {
    format!("{HEADER}\n,n1,,node,metadata.name,,{price},\n")
}

#[test]
fn a_file_with_an_error_changes_nothing_and_says_so_until_it_is_mended() {
    let mut files = Files::new(|directory, options| options.file = Some(directory.join("p.csv")));
    assert_eq!(
        files.round(),
        (vec![Fact::Discarded { reason: Discard::Garbage, count: 1 }], None, HealthState::Down)
    );
    files.write("p.csv", &csv("16"));
    let (facts, price, state) = files.round();
    assert!(matches!(&facts[..], [Fact::Prices(_)]), "{facts:?}");
    assert_eq!((price, state), (Some(16_000_000), HealthState::Up));
    assert_eq!(files.round(), (vec![], Some(16_000_000), HealthState::Up));

    files.write("p.csv", &(csv("8") + ",n2,,node,metadata.name,,free,\n,n3,,nodes,metadata.name,,1,\n"));
    let (facts, price, state) = files.round();
    assert_eq!(facts, [Fact::Discarded { reason: Discard::Garbage, count: 2 }]);
    assert_eq!((price, state), (Some(16_000_000), HealthState::Degraded));
    let reason = files.source.health().reason;
    assert!(reason.contains("line 3") && reason.contains("line 4") && reason.contains("stays"), "{reason}");
    assert_eq!(files.source.problems().len(), 2);

    files.write("p.csv", &csv("8"));
    assert_eq!(files.round().1, Some(8_000_000));
    assert_eq!(files.source.health().state, HealthState::Up);
    std::fs::remove_file(files.directory.path().join("p.csv")).unwrap();
    let (_, price, state) = files.round();
    assert_eq!((price, state), (Some(8_000_000), HealthState::Degraded), "what was read last stays");
}

#[test]
fn a_file_that_was_never_read_leaves_prices_below_it_unused() {
    let files = Files::new(|directory, options| {
        options.file = Some(directory.join("absent.csv"));
        options.instance_type = Some("p5.48xlarge".into());
    });
    let prices = files.source.prices();
    assert_eq!(price(prices), None, "the file may say otherwise");
    assert!(prices.missing.contains("price file"), "{}", prices.missing);
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let mut files = Files::new(|directory, options| options.file = Some(directory.join("p.csv")));
    let mut text = csv("16");
    while text.len() <= 1 << 20 {
        writeln!(text, ",n{},,node,metadata.name,,1,", text.len()).unwrap();
    }
    files.write("p.csv", &text);
    assert_eq!(files.round().2, HealthState::Down);
    assert!(files.source.health().reason.contains("larger than 1 MiB"));
}

#[test]
fn labels_of_the_node_choose_its_price_and_a_change_of_them_another() {
    let mut files = Files::new(|directory, options| options.node_labels = Some(directory.join("labels")));
    assert_eq!(files.round().1, None, "labels are awaited");
    files.write("labels", "node.kubernetes.io/instance-type=\"p5.48xlarge\"\n");
    assert_eq!(files.round().1, Some(6_880_000));
    files.write(
        "labels",
        "node.kubernetes.io/instance-type=\"p5.48xlarge\"\nkarpenter.sh/capacity-type=\"spot\"\n",
    );
    let (facts, price, state) = files.round();
    assert!(matches!(&facts[..], [Fact::Prices(_)]), "{facts:?}");
    assert_eq!((price, state), (None, HealthState::Up), "no spot price is known");
    assert!(files.source.prices().missing.contains("spot"));
}

#[test]
fn prices_are_told_only_where_they_differ_from_those_that_hold() {
    let mut files = Files::new(|directory, options| {
        std::fs::write(directory.join("p.csv"), csv("16")).unwrap();
        options.file = Some(directory.join("p.csv"));
    });
    assert_eq!(price(files.source.prices()), Some(16_000_000), "the first are there at once");
    assert_eq!(files.round().0, []);
    let options =
        PriceOptions { file: Some(files.directory.path().join("p.csv")), ..PriceOptions::default() };
    let mut source = PriceSource::new(options, "n1").holding(Prices::default());
    let mut facts = Vec::new();
    source.poll(&mut facts);
    assert!(matches!(&facts[..], [Fact::Prices(_), Fact::Poll { .. }]), "{facts:?}");
}

proptest! {
    #[test]
    fn no_text_panics_and_none_is_taken_in_part(
        text in "(AssetClass|MarketPriceHourly|InstanceID|node|gpu|pv|,|\n|\"|#|[0-9.a-z é-]){0,80}"
    ) {
        if let Err(problems) = parse(text.as_bytes(), "USD") {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|problem| problem.starts_with("line ") || problem.starts_with("and ")));
        }
    }
}
