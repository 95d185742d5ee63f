//! A view as text in the Prometheus exposition format 0.0.4.

use prometheus::TextEncoder;
use prometheus::proto::{MetricFamily, MetricType};
use warpmeter_core::view::View;

use crate::catalogue::{Kind, Level, families};
use crate::rows::{Pools, Rows};

/// Encodes one view after another, keeping label sets from each for the next.
///
/// What it has encoded before never shows in the text: the same view gives the same bytes.
#[derive(Debug)]
pub struct Encoder {
    level: Level,
    pools: Pools,
    /// Length of the last text.
    last: usize,
}

impl Encoder {
    /// An encoder of the families up to `level`.
    pub fn new(level: Level) -> Self {
        Self { level, pools: Pools::default(), last: 0 }
    }

    /// The exposition of `view`; families without series are left out.
    pub fn encode(&mut self, view: &View) -> String {
        // A little more than last time, so that digits which have been added do not make the text move.
        let mut text = String::with_capacity(self.last + self.last / 16);
        let level = self.level;
        for family in families().filter(|family| family.level <= level) {
            let mut rows = self.pools.rows(family.labels, family.kind);
            (family.read)(view, &mut rows);
            write(family.name, family.help, family.kind, rows, &mut text);
        }
        self.pools.trim();
        self.last = text.len();
        text
    }
}

/// Appends a family; nothing if it has no series.
pub(crate) fn write(name: &str, help: &str, kind: Kind, mut rows: Rows<'_>, text: &mut String) {
    let mut proto = MetricFamily::default();
    proto.set_metric(rows.take());
    // The encoder refuses a family without series.
    if !proto.get_metric().is_empty() {
        proto.set_name(name.to_owned());
        proto.set_help(help.to_owned());
        proto.set_field_type(match kind {
            Kind::Counter => MetricType::COUNTER,
            Kind::Gauge => MetricType::GAUGE,
            Kind::Histogram => MetricType::HISTOGRAM,
        });
        if let Err(error) = TextEncoder::new().encode_utf8(std::slice::from_ref(&proto), text) {
            tracing::error!(family = name, %error, "encode a metric family");
        }
    }
    rows.restore(proto.take_metric());
}
