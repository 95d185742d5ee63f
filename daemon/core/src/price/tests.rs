use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn quote(micros: u64) -> Quote {
    Quote::configured(Price(micros))
}

fn prices(models: &[(&str, u64)], other: Option<u64>) -> Prices {
    Prices {
        currency: "USD".into(),
        models: models.iter().map(|(name, price)| ((*name).to_owned(), quote(*price))).collect(),
        other: other.map(quote),
        ..Prices::default()
    }
}

fn price(prices: &Prices, model: &str) -> Option<Price> {
    prices.of(model, 1).map(|rate| rate.price)
}

fn book() -> Book {
    Book { currency: "USD".into(), rows: Some(Vec::new()), ..Book::default() }
}

fn node(labels: &[(&str, &str)]) -> NodeFacts {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    NodeFacts { name: "n1".into(), labels: Some(labels), ..NodeFacts::default() }
}

const TYPE: &str = "node.kubernetes.io/instance-type";
const CAPACITY: &str = "karpenter.sh/capacity-type";
const H100: &str = "NVIDIA H100 80GB HBM3";

fn row(kind: RowKind, field: &str, id: &str, micros: u64) -> Row {
    let quote = Quote { origin: Origin::File, source: "file".into(), ..quote(micros) };
    Row {
        kind,
        field: field.into(),
        id: id.into(),
        region: String::new(),
        instance_type: String::new(),
        gpus: None,
        quote,
    }
}

#[test]
fn the_longest_matching_key_gives_the_price() {
    let book = prices(&[("A100", 1), ("A100-SXM4-80GB", 2), ("A10", 3), ("L4", 4)], None);
    assert_eq!(price(&book, "NVIDIA A100-SXM4-80GB"), Some(Price(2)));
    assert_eq!(price(&book, "NVIDIA A100-PCIE-40GB"), Some(Price(1)));
    assert_eq!(price(&book, "NVIDIA A10"), Some(Price(3)));
    assert_eq!(price(&book, "NVIDIA L40S"), None, "L4 is not a word of L40S");
}

#[test]
fn a_model_without_a_price_has_the_price_of_others_or_none() {
    assert_eq!(price(&prices(&[("H100", 1)], Some(9)), "Tesla T4"), Some(Price(9)));
    assert_eq!(price(&prices(&[("H100", 1)], None), "Tesla T4"), None);
    assert_eq!(price(&prices(&[("", 1)], None), "Tesla T4"), None, "an empty key matches nothing");
}

#[test]
fn ten_years_of_a_thousand_gpus_fit() {
    let mut sum = Money::default();
    for _ in 0..1000 {
        sum.add(Money::of(Price::HIGHEST, 10 * 366 * 86_400 * 1_000_000_000));
    }
    assert!(sum.0 < u128::MAX / 1000);
}

#[test]
fn owned_hardware_costs_its_purchase_over_its_years() {
    let million = 1_000_000;
    // 30,000 over four years of 8,766 hours.
    assert_eq!(Price::amortised(30_000 * million, 0, 4 * million), Some(Price(855_578)));
    assert_eq!(Price::amortised(30_000 * million, 5_000 * million, 2_500_000), Some(Price(1_140_771)));
    assert_eq!(Price::amortised(1, 2, million), Some(Price(0)), "worth more than it cost");
    assert_eq!(Price::amortised(1, 0, 0), None);
}

#[test]
fn a_price_is_written_with_as_many_decimals_as_it_takes() {
    for (micros, text) in [(0, "0"), (2_950_000, "2.95"), (12_000_000, "12"), (1, "0.000001")] {
        assert_eq!(Price(micros).to_string(), text);
    }
}

#[test]
fn a_kilowatt_hour_at_its_price_costs_its_price() {
    assert_eq!(Money::of_energy(Price(120_000), 3_600_000_000_000).0, Money::UNIT / 1_000_000 * 120_000);
}

#[test]
fn each_layer_of_the_book_goes_before_the_next() {
    // From the lowest to the highest: each step adds one layer, which then gives the price.
    let facts = node(&[(TYPE, "p5.48xlarge"), ("gpu.nvidia.com/class", "H100")]);
    let mut book = Book { built_in: BuiltIn::Off, ..book() };
    let found = |book: &Book| {
        let prices = book.resolve(&facts);
        prices.of(H100, 8).map(|rate| (rate.price.0, rate.quote.origin))
    };
    assert_eq!(found(&book), None);
    book.built_in = BuiltIn::Models;
    assert_eq!(found(&book), Some((6_880_000, Origin::BuiltIn)));
    book.rows = Some(vec![Row { instance_type: "p5.48xlarge".into(), ..row(RowKind::Node, "", "", 80) }]);
    assert_eq!(found(&book), Some((10, Origin::File)));
    let by_label = row(RowKind::Node, "metadata.labels.gpu.nvidia.com/class", "h100", 160);
    let by_name = row(RowKind::Node, "metadata.name", "n1", 240);
    let by_provider = row(RowKind::Node, "spec.providerID", "aws:///i-1", 320);
    for (closer, price) in [(by_label, 20), (by_name, 30)] {
        book.rows.as_mut().unwrap().insert(0, closer);
        assert_eq!(found(&book), Some((price, Origin::File)));
    }
    book.rows.as_mut().unwrap().push(by_provider);
    assert_eq!(found(&book), Some((30, Origin::File)), "whose provider id is not known");
    book.node = Some(quote(400));
    assert_eq!(found(&book), Some((50, Origin::Configuration)));
    book.rows.as_mut().unwrap().push(row(RowKind::Gpu, "gpu.nvidia.com/class", "H100", 60));
    assert_eq!(found(&book), Some((60, Origin::File)));
    book.owned = Some(Quote { origin: Origin::Owned, ..quote(70) });
    assert_eq!(found(&book), Some((70, Origin::Owned)));
    book.default = Some(quote(80));
    assert_eq!(found(&book), Some((80, Origin::Configuration)));
    book.models = vec![("H100".into(), quote(90))];
    assert_eq!(found(&book), Some((90, Origin::Configuration)));
}

#[test]
fn models_of_the_table_are_used_only_if_asked_for() {
    let mut book = book();
    let price = |book: &Book, facts: &NodeFacts| book.resolve(facts).of(H100, 8).map(|rate| rate.price.0);
    assert_eq!(price(&book, &node(&[])), None);
    book.built_in = BuiltIn::Models;
    assert_eq!(price(&book, &node(&[])), Some(6_880_000));
    assert_eq!(price(&book, &node(&[(CAPACITY, "spot")])), None, "a spot GPU has no list price");
    assert_eq!(price(&book, &NodeFacts { labels: None, ..node(&[]) }), None, "it may be spot");
}

#[test]
fn labels_of_every_provider_say_how_a_node_is_paid_for() {
    for (key, value, capacity) in [
        (CAPACITY, "spot", Some(Capacity::Spot)),
        (CAPACITY, "on-demand", Some(Capacity::OnDemand)),
        (CAPACITY, "reserved", Some(Capacity::Reserved)),
        ("eks.amazonaws.com/capacityType", "SPOT", Some(Capacity::Spot)),
        ("eks.amazonaws.com/capacityType", "ON_DEMAND", Some(Capacity::OnDemand)),
        ("cloud.google.com/gke-preemptible", "true", Some(Capacity::Spot)),
        ("cloud.google.com/gke-spot", "true", Some(Capacity::Spot)),
        ("cloud.google.com/gke-spot", "false", None),
        ("kubernetes.azure.com/scalesetpriority", "spot", Some(Capacity::Spot)),
        ("kubernetes.azure.com/scalesetpriority", "regular", Some(Capacity::OnDemand)),
        ("capacity", "spot", None),
    ] {
        assert_eq!(node(&[(key, value)]).capacity(), capacity, "{key}={value}");
    }
    let configured = NodeFacts { capacity: Some(Capacity::Reserved), ..node(&[(CAPACITY, "spot")]) };
    assert_eq!(configured.capacity(), Some(Capacity::Reserved));
}

#[test]
fn a_spot_node_never_has_the_price_of_an_on_demand_one() {
    let mut on_demand = row(RowKind::Node, "metadata.name", "n1", 8);
    on_demand.quote.capacity = Some(Capacity::OnDemand);
    let mut book = Book { rows: Some(vec![on_demand.clone()]), built_in: BuiltIn::Models, ..book() };
    let spot = node(&[(TYPE, "p5.48xlarge"), (CAPACITY, "spot")]);
    let prices = book.resolve(&spot);
    assert_eq!(prices.of(H100, 8), None);
    assert!(prices.missing.contains("spot") && prices.missing.contains("p5.48xlarge"), "{}", prices.missing);

    let google = node(&[(TYPE, "g2-standard-4"), ("cloud.google.com/gke-spot", "true")]);
    let prices = book.resolve(&google);
    let rate = prices.of("NVIDIA L4", 1).unwrap();
    assert_eq!((rate.price.0, rate.quote.capacity), (397_300, Some(Capacity::Spot)));

    let mut row = on_demand;
    row.quote.capacity = Some(Capacity::Spot);
    row.quote.price = Price(3);
    book.rows.as_mut().unwrap().push(row);
    assert_eq!(book.resolve(&spot).of(H100, 1).unwrap().quote.price, Price(3));
}

#[test]
fn a_reserved_node_has_its_own_price_or_the_discounted_one_or_none() {
    let reserved = node(&[(TYPE, "p5.48xlarge"), (CAPACITY, "reserved")]);
    let mut book = book();
    let prices = book.resolve(&reserved);
    assert_eq!(prices.of(H100, 8), None);
    assert!(prices.missing.contains("discount"), "{}", prices.missing);
    book.discount = Some(400_000);
    let prices = book.resolve(&reserved);
    let quote = prices.of(H100, 8).unwrap().quote;
    assert_eq!((quote.price.0, quote.capacity), (33_024_000, Some(Capacity::Reserved)));
    let mut row = row(RowKind::Node, "metadata.name", "n1", 8);
    row.quote.capacity = Some(Capacity::Reserved);
    book.rows = Some(vec![row]);
    assert_eq!(book.resolve(&reserved).of(H100, 8).unwrap().quote.price, Price(8));
}

#[test]
fn what_is_not_known_is_said_with_what_to_set() {
    let unknown = |book: &Book, facts: &NodeFacts, word: &str| {
        let prices = book.resolve(facts);
        assert_eq!(prices.of(H100, 8), None);
        assert!(prices.missing.contains(word), "{word}: {}", prices.missing);
    };
    let p5 = node(&[(TYPE, "p5.48xlarge")]);
    unknown(&book(), &node(&[]), "instance_type");
    unknown(&book(), &node(&[(TYPE, "x9.huge")]), "x9.huge");
    unknown(&Book { currency: "EUR".into(), ..book() }, &p5, "EUR");
    unknown(&Book { built_in: BuiltIn::Off, ..book() }, &p5, "off");
    unknown(&book(), &NodeFacts { labels: None, ..p5.clone() }, "labels");
    unknown(&Book { rows: None, ..book() }, &p5, "price file");
    assert_eq!(book().resolve(&p5).missing, "");
}

#[test]
fn a_row_of_another_region_type_or_node_is_not_used() {
    let labels = [(TYPE, "p5.48xlarge"), ("topology.kubernetes.io/region", "eu-west-1")];
    let of = |row: Row, facts: &NodeFacts| {
        let book = Book { built_in: BuiltIn::Off, rows: Some(vec![row]), ..book() };
        book.resolve(facts).of(H100, 1).map(|rate| rate.price.0)
    };
    let facts = node(&labels);
    let typed = Row { instance_type: "p5.48xlarge".into(), ..row(RowKind::Node, "", "", 8) };
    let regional = |region: &str| Row { region: region.into(), ..typed.clone() };
    assert_eq!(of(regional("eu-west-1"), &facts), Some(1), "a row's number of GPUs is the table's: 8");
    assert_eq!(of(regional("us-east-1"), &facts), None);
    assert_eq!(of(regional("eu-west-1"), &node(&labels[..1])), None, "the region is not known");
    assert_eq!(of(Row { instance_type: "p4d.24xlarge".into(), ..typed.clone() }, &facts), None);
    assert_eq!(of(row(RowKind::Node, "metadata.name", "n2", 5), &facts), None);
    assert_eq!(of(row(RowKind::Node, "metadata.annotations.price", "n1", 5), &facts), None);
}

#[test]
fn of_rows_that_fit_equally_the_newest_counts() {
    let dated = |date: &str, micros| {
        let mut row = row(RowKind::Node, "metadata.name", "n1", micros);
        row.quote.as_of = Some(date.parse().unwrap());
        row
    };
    let rows = vec![dated("2026-02-01", 2), dated("2026-03-01", 3), dated("2026-01-01", 1)];
    let book = Book { rows: Some(rows), ..book() };
    assert_eq!(book.resolve(&node(&[])).of(H100, 1).unwrap().price, Price(3));
}

#[test]
fn the_price_of_a_fraction_is_scaled_and_never_divided_by_it() {
    let facts = node(&[(TYPE, "g6f.large")]);
    let prices = book().resolve(&facts);
    let rate = prices.of("NVIDIA L4-3Q", 1).unwrap();
    assert_eq!((rate.price.0, rate.of_node), (202_000, true), "the instance's price is its one device's");
    let book = Book { models: vec![("L4".into(), quote(800_000))], ..book() };
    let prices = book.resolve(&facts);
    assert_eq!(prices.of("NVIDIA L4-3Q", 1).unwrap().price.0, 100_000, "an eighth of a whole L4");
}

#[test]
fn the_table_has_each_type_once_and_is_found_with_and_without_azures_prefix() {
    let mut names: Vec<&str> =
        table::LISTS.iter().flat_map(|list| list.instances).map(|row| row.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    for (name, gpus) in [("Standard_ND96isr_H100_v5", 8), ("ND96isr_H100_v5", 8), ("p5.48xlarge", 8)] {
        assert_eq!(table::instance(name).unwrap().1.gpus, gpus);
    }
    for row in table::LISTS.iter().flat_map(|list| list.instances) {
        assert!(row.gpus > 0 && row.on_demand > 0 && row.part.0 <= row.part.1 && row.part.0 > 0, "{row:?}");
        assert!(row.spot.is_none_or(|spot| spot < row.on_demand), "{row:?}");
        let fractional = row.part != (1, 1);
        assert!(!fractional || row.gpus == 1, "{row:?}");
    }
}

#[test]
fn a_recording_of_bare_prices_is_still_read() {
    let old = r#"{"currency":"USD","models":[["H100",2950000]],"other":null}"#;
    let read: Prices = serde_json::from_str(old).unwrap();
    assert_eq!(read, Prices { models: vec![("H100".into(), quote(2_950_000))], ..prices(&[], None) });
    let full = Book { discount: Some(1), energy: Some(quote(7)), built_in: BuiltIn::Models, ..book() }
        .resolve(&node(&[(TYPE, "g2-standard-4"), ("cloud.google.com/gke-spot", "true")]));
    let text = serde_json::to_string(&full).unwrap();
    assert_eq!(serde_json::from_str::<Prices>(&text).unwrap(), full);
}

proptest! {
    #[test]
    fn the_prices_of_gpus_and_host_sum_to_the_nodes(
        price in 0..=Price::HIGHEST.0,
        known in proptest::option::of(0_u32..20),
        seen in 0_u32..20,
        host_share in 0_u32..1_000_000,
    ) {
        let node = NodePrice { quote: quote(price), gpus: known, host_share };
        let gpus = u64::from(known.unwrap_or(0).max(seen).max(1));
        prop_assert_eq!(node.per_gpu(seen).0 * gpus + node.host(seen).0, price);
        // No more than the rounding is taken from the GPUs.
        let share = u128::from(price) * u128::from(1_000_000 - host_share) / 1_000_000;
        prop_assert!(share - u128::from(node.per_gpu(seen).0 * gpus) <= u128::from(gpus));
    }
}
