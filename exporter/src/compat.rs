//! Figures under DCGM's names, with its labels and scales, for tools that know only those.
//!
//! What differs on purpose: a device's value is divided between the pods on it instead of copied to each, and what
//! is nobody's is a series without pod, so that the sum over a family is the value of the devices. A property of a
//! device that cannot be divided, such as its temperature, is shown once. `docs/compatibility.md` has all of it.

mod families;
mod series;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpmeter_core::identity::DeviceId;
use warpmeter_core::view::View;

use crate::encode;
use crate::rows::Pools;
use families::FAMILIES;
use series::{LABELS, Series};
use window::History;

/// Encodes one view after another under DCGM's names.
#[derive(Debug, Default)]
pub struct Dcgm {
    history: History,
    pools: Pools,
    /// For each family, the devices of which a part was nobody's: its series stays, so that averages over time
    /// count it where it is 0 too.
    remainders: BTreeMap<&'static str, BTreeSet<DeviceId>>,
    /// Length of the last text.
    last: usize,
}

impl Dcgm {
    /// The exposition of `view`. Gauges are those of each GPU's last window.
    pub fn encode(&mut self, view: &Arc<View>) -> String {
        let mut text = String::with_capacity(self.last + self.last / 16);
        let gpus = self.history.learn(view);
        for family in FAMILIES {
            let rows = self.pools.rows(LABELS, family.kind);
            let mut series = Series::new(rows, self.remainders.entry(family.name).or_default());
            for gpu in &gpus {
                (family.read)(gpu, &mut series);
            }
            encode::write(family.name, family.help, family.kind, series.into_rows(), &mut text);
        }
        self.pools.trim();
        for remainders in self.remainders.values_mut() {
            remainders.retain(|device| view.gpu(&device.gpu).is_some());
        }
        self.last = text.len();
        text
    }
}
