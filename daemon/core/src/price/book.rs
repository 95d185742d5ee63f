//! All that is known of prices, and which of it holds for a node.

use super::{Capacity, NodeFacts, NodePrice, Origin, Price, Prices, Quote, table};

/// Parts in one.
const MILLION: u32 = 1_000_000;

/// How much of the built-in table is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BuiltIn {
    /// Nothing.
    Off,
    /// Prices of instance types.
    #[default]
    Instances,
    /// Also prices of GPU models, where the instance type is not known.
    Models,
}

/// What a row of the price file prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// A node.
    Node,
    /// Each GPU of a node.
    Gpu,
}

/// A row of the price file. Empty texts are not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What it prices.
    pub kind: RowKind,
    /// Which of the node's properties `id` is: `metadata.name`, `spec.providerID`, `metadata.labels.KEY`, or of a GPU
    /// row, `KEY`, the label that holds the model.
    pub field: String,
    /// The value of that property.
    pub id: String,
    /// The region, if the row is only for one.
    pub region: String,
    /// The instance type: a node row without `id` is for all nodes of it.
    pub instance_type: String,
    /// How many GPUs the node has, if the row says.
    pub gpus: Option<u32>,
    /// The price; its capacity type is the only one that the row is for.
    pub quote: Quote,
}

/// The price book: layers, highest first. An empty book has no price for anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    /// The currency of everything in it.
    pub currency: String,
    /// Prices of whole GPUs by words of the product name.
    pub models: Vec<(String, Quote)>,
    /// The price of GPUs that no word matches.
    pub default: Option<Quote>,
    /// The price of an owned GPU.
    pub owned: Option<Quote>,
    /// The rows of the price file; none while it is awaited.
    pub rows: Option<Vec<Row>>,
    /// The price of this node.
    pub node: Option<Quote>,
    /// How much of the built-in table is used.
    pub built_in: BuiltIn,
    /// The part of a node's price that is not its GPUs', in millionths.
    pub host_share: u32,
    /// What a reservation takes off the on-demand price, in millionths.
    pub discount: Option<u32>,
    /// The price of a kilowatt-hour.
    pub energy: Option<Quote>,
}

/// A price below those of the configuration's words.
enum Below {
    Gpu(Quote),
    Node(Quote, Option<u32>),
}

impl Book {
    /// The prices of a node.
    pub fn resolve(&self, node: &NodeFacts) -> Prices {
        let capacity = node.capacity();
        let instance = node.instance_type().and_then(table::instance).map(|(_, instance)| instance);
        let mut prices = Prices {
            currency: self.currency.clone(),
            models: self.models.iter().map(|(key, quote)| (key.clone(), quote.paid(capacity))).collect(),
            energy: self.energy.clone(),
            part: instance.map(|instance| instance.part).filter(|(part, whole)| part < whole),
            ..Prices::default()
        };
        prices.other = self.default.as_ref().map(|quote| quote.paid(capacity)).or_else(|| self.owned.clone());
        if prices.other.is_some() {
            return prices;
        }
        match self.below(node) {
            Ok(Below::Gpu(quote)) => prices.other = Some(quote),
            Ok(Below::Node(quote, gpus)) => {
                let gpus = gpus.or(instance.map(|instance| instance.gpus));
                prices.node = Some(NodePrice { quote, gpus, host_share: self.host_share });
            }
            Err(reason) => {
                prices.fallback = self.fallback(node);
                prices.missing = reason;
            }
        }
        prices
    }

    fn below(&self, node: &NodeFacts) -> Result<Below, String> {
        let rows = self.rows.as_ref().ok_or(
            "the price file has never been read: what it says goes before what is left; mend [price] file",
        )?;
        let awaited = || Err("the node's labels are not known yet".to_owned());
        if node.labels.is_none() && rows.iter().any(|row| row.kind == RowKind::Gpu) {
            return awaited();
        }
        if let Some(row) = self.best(rows, RowKind::Gpu, node) {
            return Ok(Below::Gpu(row));
        }
        if let Some(quote) = &self.node {
            return Ok(Below::Node(quote.paid(node.capacity()), None));
        }
        if let Some((quote, gpus)) = self.best_with_gpus(rows, RowKind::Node, node) {
            return Ok(Below::Node(quote, gpus));
        }
        if node.awaited() {
            return awaited();
        }
        self.instance(node).map(|quote| Below::Node(quote, None))
    }

    fn best(&self, rows: &[Row], kind: RowKind, node: &NodeFacts) -> Option<Quote> {
        self.best_with_gpus(rows, kind, node).map(|(quote, _)| quote)
    }

    /// The row that is most about this node; of several, the newest.
    fn best_with_gpus(&self, rows: &[Row], kind: RowKind, node: &NodeFacts) -> Option<(Quote, Option<u32>)> {
        let of_kind = rows.iter().filter(|row| row.kind == kind);
        let found = of_kind.filter_map(|row| {
            let about = row.about(node)?;
            let (fit, quote) = self.fit(&row.quote, node)?;
            Some(((about, !row.region.is_empty(), fit, row.quote.as_of), quote, row.gpus))
        });
        found.max_by_key(|(rank, ..)| *rank).map(|(_, quote, gpus)| (quote, gpus))
    }

    /// How well a figure fits how the node is paid for, and what it then says. A figure without a capacity type is
    /// for whatever the node is.
    fn fit(&self, quote: &Quote, node: &NodeFacts) -> Option<(u8, Quote)> {
        let paid = node.capacity().unwrap_or(Capacity::OnDemand);
        match (quote.capacity, paid) {
            (None, _) => Some((1, quote.paid(node.capacity()))),
            (Some(capacity), paid) if capacity == paid => Some((2, quote.clone())),
            (Some(Capacity::OnDemand), Capacity::Reserved) => {
                self.discounted(quote).map(|discounted| (0, discounted))
            }
            _ => None,
        }
    }

    fn discounted(&self, quote: &Quote) -> Option<Quote> {
        let price = quote.share(MILLION.saturating_sub(self.discount?), MILLION);
        let source = format!("{}, less the discount", quote.source).into();
        Some(Quote { price, source, capacity: Some(Capacity::Reserved), ..quote.clone() })
    }

    /// The built-in price of the node's instance type.
    fn instance(&self, node: &NodeFacts) -> Result<Quote, String> {
        if self.built_in == BuiltIn::Off {
            return Err("nothing prices this node, and the built-in table is off".to_owned());
        }
        let name = node.instance_type().ok_or(
            "no price is set, and the instance type is not known: set a price such as H100 = 2.95, or \
             instance_type, node_labels or api",
        )?;
        if self.currency != table::CURRENCY {
            return Err(format!(
                "the built-in table is in {} and is not used with {}: set a price such as H100 = 2.95, or node",
                table::CURRENCY,
                self.currency
            ));
        }
        let (list, instance) = table::instance(name).ok_or_else(|| {
            format!("the built-in table does not have {name}: set its price as node, or a price such as H100 = 2.95")
        })?;
        let listed = |micros| Quote {
            price: Price(micros),
            origin: Origin::BuiltIn,
            source: list.source.into(),
            as_of: Some(list.as_of),
            capacity: Some(Capacity::OnDemand),
        };
        match node.capacity().unwrap_or(Capacity::OnDemand) {
            Capacity::OnDemand => Ok(listed(instance.on_demand)),
            Capacity::Spot => {
                let quote = instance.spot.map(|micros| listed(micros).paid(Some(Capacity::Spot)));
                quote.ok_or_else(|| {
                    format!("the node is spot, and no spot price of {name} is known: set it as node, or in the price file")
                })
            }
            Capacity::Reserved => self.discounted(&listed(instance.on_demand)).ok_or_else(|| {
                format!(
                    "the node is reserved, and no price of {name} for that is known: set discount, or node"
                )
            }),
        }
    }

    /// Built-in prices of models: list prices, so not for a node that is paid for otherwise.
    fn fallback(&self, node: &NodeFacts) -> Vec<(String, Quote)> {
        let listed = matches!(node.capacity(), None | Some(Capacity::OnDemand)) && !node.awaited();
        let wanted = self.built_in == BuiltIn::Models && self.rows.is_some();
        if !wanted || !listed || self.currency != table::CURRENCY {
            return Vec::new();
        }
        let quote = |model: &table::Model| Quote {
            price: Price(model.price),
            origin: Origin::BuiltIn,
            source: model.source.into(),
            as_of: Some(model.as_of),
            capacity: Some(Capacity::OnDemand),
        };
        table::MODELS.iter().map(|model| (model.words.to_owned(), quote(model))).collect()
    }
}

impl Row {
    /// Whether the row is about `node`, and how closely.
    fn about(&self, node: &NodeFacts) -> Option<u8> {
        let same = |value: Option<&str>, wanted: &str| {
            value.is_some_and(|value| !value.is_empty() && value.eq_ignore_ascii_case(wanted))
        };
        if !self.region.is_empty() && !same(node.region(), &self.region) {
            return None;
        }
        let label = self.field.strip_prefix("metadata.labels.");
        let (value, closeness) = match (self.kind, self.field.as_str()) {
            (RowKind::Gpu, field) => (node.label(label.unwrap_or(field)), 1),
            (RowKind::Node, _) if self.id.is_empty() => {
                return same(node.instance_type(), &self.instance_type).then_some(0);
            }
            (RowKind::Node, "spec.providerID") => (Some(node.provider_id.as_str()), 3),
            (RowKind::Node, "metadata.name") => (Some(node.name.as_str()), 2),
            (RowKind::Node, _) => (label.and_then(|key| node.label(key)), 1),
        };
        same(value, &self.id).then_some(closeness)
    }
}
