//! The section `[price]`.

use toml::de::DeValue;
use warpmeter_core::price::{Date, Origin, Price, Quote};

use super::reader::Section;
use super::values;
use crate::prices::PriceOptions;

/// The keys that are no words of product names.
const KEYS: [&str; 15] = [
    "currency",
    "default",
    "node",
    "file",
    "instance_type",
    "capacity_type",
    "host_share",
    "discount",
    "built_in",
    "node_labels",
    "api",
    "power_per_kwh",
    "owned",
    "a word of a GPU's product name such as H100",
    "the same with a table { price, as_of, source }",
];

/// Reads the section. `api` is whether the API server is asked for the node's labels.
pub(super) fn read(section: &mut Section<'_>, options: &mut PriceOptions, api: &mut bool) -> bool {
    let book = &mut options.book;
    section.read(&KEYS, |section, key| match key {
        "currency" => section.set(key, &mut book.currency, values::currency),
        "default" => quote(section, key, &mut book.default),
        "node" => quote(section, key, &mut book.node),
        "power_per_kwh" => quote(section, key, &mut book.energy),
        "owned" => owned(section, key, &mut book.owned),
        "host_share" => section.set(key, &mut book.host_share, values::part),
        "discount" => section.set_some(key, &mut book.discount, values::part),
        "built_in" => section.set(key, &mut book.built_in, values::built_in),
        "file" => section.set_some(key, &mut options.file, values::path),
        "node_labels" => section.set_some(key, &mut options.node_labels, values::path),
        "api" => section.set(key, api, values::boolean),
        "instance_type" => section.set_some(key, &mut options.instance_type, values::label),
        "capacity_type" => section.set_some(key, &mut options.capacity, values::capacity),
        model if values::is_model(model) => {
            let mut price = None;
            quote(section, model, &mut price);
            book.models.extend(price.map(|price| (model.to_owned(), price)));
            true
        }
        _ => false,
    });
    if *api && options.node_labels.is_some() {
        section.wrong("api", "`api` and `node_labels` in [price] are two ways to the same labels: set one");
    }
    true
}

/// A price: a number, or a table with its day and source.
fn quote(section: &mut Section<'_>, key: &str, place: &mut Option<Quote>) -> bool {
    if !section.is_table(key) {
        let price = |value: &DeValue<'_>| values::price(value).map(Quote::configured);
        return section.set_some(key, place, price);
    }
    section.within(key, |table| {
        let (mut price, mut as_of, mut source) = (None, None, None);
        table.read(&["price", "as_of", "source"], |table, key| match key {
            "price" => table.set_some(key, &mut price, values::price),
            _ => provenance(table, key, &mut as_of, &mut source),
        });
        table.require("price");
        *place = price.map(|price| with(Quote::configured(price), as_of, source));
    })
}

/// Owned hardware: what it cost, and over how many years.
fn owned(section: &mut Section<'_>, key: &str, place: &mut Option<Quote>) -> bool {
    if !section.is_table(key) {
        let table = |_: &DeValue<'_>| Err("wants a table such as { purchase = 30000, years = 4 }".to_owned());
        return section.set_some(key, place, table);
    }
    section.within(key, |table| {
        let (mut purchase, mut years, mut residual) = (None, None, 0);
        let (mut as_of, mut source) = (None, None);
        let keys = ["purchase", "years", "residual", "as_of", "source"];
        table.read(&keys, |table, key| match key {
            "purchase" => table.set_some(key, &mut purchase, values::amount),
            "residual" => table.set(key, &mut residual, values::amount),
            "years" => table.set_some(key, &mut years, values::years),
            _ => provenance(table, key, &mut as_of, &mut source),
        });
        table.require("purchase");
        table.require("years");
        if purchase.is_some_and(|purchase| purchase < residual) {
            table.wrong("residual", "`residual` in [price.owned] is more than `purchase`");
        }
        let price =
            purchase.zip(years).and_then(|(purchase, years)| Price::amortised(purchase, residual, years));
        *place = price.map(|price| {
            let (origin, source_text) = (Origin::Owned, Origin::Owned.label());
            let quote = Quote { origin, source: source_text.into(), ..Quote::configured(price) };
            with(quote, as_of, source)
        });
    })
}

fn provenance(
    table: &mut Section<'_>,
    key: &str,
    as_of: &mut Option<Date>,
    source: &mut Option<String>,
) -> bool {
    match key {
        "as_of" => table.set_some(key, as_of, values::date),
        "source" => table.set_some(key, source, values::label),
        _ => false,
    }
}

fn with(quote: Quote, as_of: Option<Date>, source: Option<String>) -> Quote {
    let source = source.map_or(quote.source, Into::into);
    Quote { as_of, source, ..quote }
}
