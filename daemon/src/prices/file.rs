//! The price file: CSV in the columns of OpenCost's custom pricing, and some more.
//!
//! ```text
//! EndTimestamp,InstanceID,Region,AssetClass,InstanceIDField,InstanceType,MarketPriceHourly,Version
//! ,gpu-1,,node,metadata.name,,98.32,
//! ,H100,,gpu,nvidia.com/gpu.family,,2.95,
//! ```
//!
//! The columns are found by their names, in any order; `Currency`, `AsOf`, `Source`, `CapacityType` and `GpuCount`
//! may be there too. Lines that begin with `#` are comments.

use std::collections::BTreeMap;

use csv::{ByteRecord, Position, ReaderBuilder, StringRecord, Trim};
use warpmeter_core::price::{Capacity, Date, Origin, Price, Quote, Row, RowKind, rounded_micros};

/// The longest text of a row that is shown anywhere, in bytes.
const LONGEST_SOURCE: usize = 128;
/// The most GPUs that a node is taken to have.
const MOST_GPUS: u32 = 1024;
/// Problems that are kept: who has more has another kind of file.
const MOST_PROBLEMS: usize = 1000;

/// The columns: OpenCost's, and then our own.
const COLUMNS: [&str; 13] = [
    "EndTimestamp",
    "InstanceID",
    "Region",
    "AssetClass",
    "InstanceIDField",
    "InstanceType",
    "MarketPriceHourly",
    "Version",
    "Currency",
    "AsOf",
    "Source",
    "CapacityType",
    "GpuCount",
];

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceFile {
    /// Prices of nodes and GPUs.
    pub rows: Vec<Row>,
    /// Rows that price neither, or by what is not known here: persistent volumes, annotations of nodes.
    pub skipped: u64,
}

/// A record with the places of its columns.
struct Record<'r> {
    places: &'r BTreeMap<&'static str, usize>,
    record: &'r StringRecord,
}

/// What must be the same for two rows to be about the same.
type Key = (bool, [String; 4], Option<Capacity>, Option<Date>);

/// Parses a file. On failure gives every problem, each with its line.
pub fn parse(bytes: &[u8], currency: &str) -> Result<PriceFile, Vec<String>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(bytes);
    let mut problems = Problems::default();
    let mut columns: Option<(BTreeMap<&'static str, usize>, usize)> = None;
    let mut file = PriceFile::default();
    let mut seen: BTreeMap<Key, (u64, Price, Option<u32>)> = BTreeMap::new();
    let mut record = ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                problems.add(reader.position().line(), error.to_string());
                break;
            }
        }
        let line = record.position().map_or(0, |position| line_of(bytes, position));
        let Ok(text) = StringRecord::from_byte_record(record.clone()) else {
            problems.add(line, "it is not UTF-8");
            continue;
        };
        let Some((places, width)) = &columns else {
            columns = Some((header(&text, line, &mut problems), text.len()));
            continue;
        };
        if text.len() != *width {
            problems.add(line, format!("it has {} fields, and the header has {width}", text.len()));
            continue;
        }
        match row(&Record { places, record: &text }, currency) {
            Ok(Some(row)) => {
                let said = (line, row.quote.price, row.gpus);
                let before = seen.entry(key(&row)).or_insert(said);
                if (before.1, before.2) == (said.1, said.2) {
                    file.rows.push(row);
                } else {
                    problems.add(line, format!("line {} says otherwise of the same", before.0));
                }
            }
            Ok(None) => file.skipped += 1,
            Err(reasons) => reasons.into_iter().for_each(|reason| problems.add(line, reason)),
        }
    }
    if columns.is_none() {
        problems.add(1, format!("it has no header; the columns are {}", COLUMNS.join(", ")));
    }
    problems.or(file)
}

/// The line of a record: its position is that of the empty lines and comments before it.
fn line_of(bytes: &[u8], position: &Position) -> u64 {
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let mut line = position.line();
    for text in bytes.get(start..).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
        if !text.starts_with(b"#") && !text.iter().all(|byte| b"\r\n".contains(byte)) {
            break;
        }
        line += 1;
    }
    line
}

/// The place of each column. Case does not matter; one that nobody knows may be a known one with a mistake.
fn header(record: &StringRecord, line: u64, problems: &mut Problems) -> BTreeMap<&'static str, usize> {
    let mut places = BTreeMap::new();
    for (place, name) in record.iter().enumerate() {
        match COLUMNS.iter().find(|column| column.eq_ignore_ascii_case(name)) {
            Some(column) if places.insert(*column, place).is_some() => {
                problems.add(line, format!("the column {column} is there twice"));
            }
            Some(_) => {}
            None => problems.add(
                line,
                format!("unknown column {:?}; the columns are {}", shown(name), COLUMNS.join(", ")),
            ),
        }
    }
    for needed in ["AssetClass", "MarketPriceHourly"] {
        if !places.contains_key(needed) {
            problems.add(line, format!("there is no column {needed}"));
        }
    }
    places
}

/// A row, nothing if it prices something else, or all that is wrong with it.
fn row(record: &Record<'_>, currency: &str) -> Result<Option<Row>, Vec<String>> {
    let mut wrong = Vec::new();
    let kind = match record.get("AssetClass").to_ascii_lowercase().as_str() {
        "node" => RowKind::Node,
        "gpu" | "gpulabel" => RowKind::Gpu,
        "pv" => return Ok(None),
        other => {
            return Err(vec![format!("AssetClass {:?} is none of node, gpu, gpulabel, pv", shown(other))]);
        }
    };
    let [id, field, instance_type] =
        ["InstanceID", "InstanceIDField", "InstanceType"].map(|name| record.get(name));
    if kind == RowKind::Node && field.starts_with("metadata.annotations.") {
        return Ok(None);
    }
    match kind {
        RowKind::Node if id.is_empty() && instance_type.is_empty() => {
            wrong.push("a node row needs InstanceID or InstanceType".to_owned());
        }
        RowKind::Node if !id.is_empty() && !is_node_field(field) => wrong.push(format!(
            "InstanceIDField {:?} is none of metadata.name, spec.providerID, metadata.labels.KEY",
            shown(field)
        )),
        RowKind::Gpu if id.is_empty() || field.is_empty() => {
            wrong.push(
                "a gpu row needs InstanceID, the model, and InstanceIDField, the node label that has it"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let amount = record.get("MarketPriceHourly");
    let price = rounded_micros(amount).map(Price).filter(|price| *price <= Price::HIGHEST);
    if price.is_none() {
        wrong.push(format!(
            "MarketPriceHourly {:?} is not a price from 0 to {}",
            shown(amount),
            Price::HIGHEST
        ));
    }
    let theirs = record.get("Currency");
    if !theirs.is_empty() && theirs != currency {
        wrong.push(format!("Currency {:?} is not {currency}, and nothing is exchanged here", shown(theirs)));
    }
    let capacity = parsed(record.get("CapacityType"), Capacity::parse).unwrap_or_else(|text| {
        wrong.push(format!("CapacityType {text:?} is none of on-demand, spot, reserved"));
        None
    });
    let as_of = parsed(record.get("AsOf"), |text| text.parse::<Date>().ok()).unwrap_or_else(|text| {
        wrong.push(format!("AsOf {text:?} is not a date such as 2026-07-20"));
        None
    });
    let count = |text: &str| text.parse().ok().filter(|count| (1..=MOST_GPUS).contains(count));
    let gpus = parsed(record.get("GpuCount"), count).unwrap_or_else(|text| {
        wrong.push(format!("GpuCount {text:?} is not a number from 1 to {MOST_GPUS}"));
        None
    });
    let source = record.get("Source");
    if source.len() > LONGEST_SOURCE || source.chars().any(char::is_control) {
        wrong.push(format!(
            "Source {:?} is longer than {LONGEST_SOURCE} bytes, or does not show",
            shown(source)
        ));
    }
    let Some(price) = price.filter(|_| wrong.is_empty()) else { return Err(wrong) };
    // OpenCost's own column can have any form; where it begins with a day, that is the day.
    let ended = record.get("EndTimestamp").get(..10).and_then(|day| day.parse().ok());
    let quote = Quote {
        price,
        origin: Origin::File,
        source: if source.is_empty() { Origin::File.label() } else { source }.into(),
        as_of: as_of.or(ended),
        capacity,
    };
    let [field, id, region, instance_type] =
        [field, id, record.get("Region"), instance_type].map(str::to_owned);
    Ok(Some(Row { kind, field, id, region, instance_type, gpus, quote }))
}

fn is_node_field(field: &str) -> bool {
    let label = field.strip_prefix("metadata.labels.");
    field == "metadata.name" || field == "spec.providerID" || label.is_some_and(|key| !key.is_empty())
}

/// What a text says; nothing if it is empty, and the text if it says nothing of the kind.
fn parsed<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some).ok_or_else(|| shown(text)) }
}

fn key(row: &Row) -> Key {
    let texts = [&row.field, &row.id, &row.region, &row.instance_type].map(|text| text.to_ascii_lowercase());
    (row.kind == RowKind::Node, texts, row.quote.capacity, row.quote.as_of)
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

impl Record<'_> {
    /// The text of a column; empty if there is none.
    fn get(&self, column: &str) -> &str {
        self.places.get(column).and_then(|place| self.record.get(*place)).unwrap_or("")
    }
}

/// Problems in order of line.
#[derive(Default)]
struct Problems {
    found: Vec<String>,
    beyond: u64,
}

impl Problems {
    fn add(&mut self, line: u64, reason: impl AsRef<str>) {
        if self.found.len() < MOST_PROBLEMS {
            self.found.push(format!("line {line}: {}", reason.as_ref()));
        } else {
            self.beyond += 1;
        }
    }

    fn or(mut self, file: PriceFile) -> Result<PriceFile, Vec<String>> {
        if self.beyond > 0 {
            self.found.push(format!("and {} more", self.beyond));
        }
        if self.found.is_empty() { Ok(file) } else { Err(self.found) }
    }
}
