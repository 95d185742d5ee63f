//! Whose a board's energy was.

use std::collections::BTreeMap;

use super::close::namespace;
use super::{Fold, GpuState};
use crate::identity::{DeviceId, GpuId, Owner};
use crate::price::Price;
use crate::split::Split;
use crate::time::SECOND;
use crate::window::Window;

/// Nanoseconds by owner and device; none: nobody's.
pub(super) type Parts = BTreeMap<(Option<Owner>, DeviceId), u64>;

impl Fold {
    /// Divides what a board took in a window. What it draws without any work goes to those who hold it, whether they
    /// use it or not; the rest to those who used it, by time.
    pub(super) fn share_energy(
        &mut self,
        id: &GpuId,
        window: &Window,
        energy: u64,
        price: Option<Price>,
        (used, held): (Parts, Parts),
    ) {
        let Some(state) = self.gpus.get_mut(id) else { return };
        let parts = window.reading.iter().flat_map(|reading| &reading.parts);
        let known = parts.clone().next().is_some() && parts.clone().all(|part| part.engine.is_some());
        let ran: u64 = used.values().fold(0, |sum, amount| sum.saturating_add(*amount));
        let nanos = window.during.nanos();
        let idle = if !known {
            None
        } else if ran <= nanos / 1000 {
            state.learn_idle(energy, nanos);
            Some(energy)
        } else {
            state.idle_power.map(|power| of_power(power, nanos).min(energy))
        };
        if let Some(idle) = idle {
            *state.totals.idle_energy_uj.get_or_insert(0) += idle;
        }
        let by_holding = idle.unwrap_or(0);
        self.divide_energy(by_holding, price, held.clone(), idle.is_some());
        let used = if ran > 0 { used } else { held };
        self.divide_energy(energy - by_holding, price, used, false);
    }

    fn divide_energy(&mut self, energy: u64, price: Option<Price>, by: Parts, idle: bool) {
        let split = Split::by_weight(energy, by.into_iter().collect());
        for ((owner, device), amount) in split.map(Split::into_parts).unwrap_or_default() {
            if let Some(owner) = owner {
                let namespace = namespace(&self.named, &owner);
                self.ledger.post_energy(&owner, &device, amount, price, namespace);
                if idle {
                    self.ledger.post_idle_energy(&owner, &device, amount);
                }
            }
        }
    }
}

impl GpuState {
    /// Takes note of what the board took in a window without work: the least so far is what it draws idle.
    fn learn_idle(&mut self, energy: u64, nanos: u64) {
        let power = u128::from(energy) * u128::from(SECOND) / u128::from(nanos);
        let power = u64::try_from(power).unwrap_or(u64::MAX);
        self.idle_power = Some(self.idle_power.map_or(power, |least| least.min(power)));
    }
}

/// Microjoules of so many microwatts.
fn of_power(microwatts: u64, nanos: u64) -> u64 {
    u64::try_from(u128::from(microwatts) * u128::from(nanos) / u128::from(SECOND)).unwrap_or(u64::MAX)
}
