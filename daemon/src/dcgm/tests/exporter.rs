//! An exporter as it is seen from outside: it collects at fixed times, and shows what it collected last.

use super::A100;

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It collects all the time.
    Well,
    /// It shows its last values from this time on.
    Dead(u64),
}

/// An exporter of one A100.
#[derive(Debug, Clone)]
pub(super) struct Exporter {
    pub(super) interval: u64,
    /// When it collected for the first time.
    pub(super) first: u64,
    pub(super) life: Life,
    /// SM activity in millionths, of the interval that ends with the n-th collection.
    pub(super) active: fn(u64) -> u64,
    /// Whether energy is among its counters.
    pub(super) energy: bool,
}

impl Exporter {
    /// The collection that is shown at `now`.
    pub(super) fn round(&self, now: u64) -> u64 {
        let now = match self.life {
            Life::Dead(at) => now.min(at),
            Life::Well => now,
        };
        (now - self.first) / self.interval
    }

    /// When the n-th collection was.
    pub(super) fn collected(&self, round: u64) -> u64 {
        self.first + round * self.interval
    }

    pub(super) fn page(&self, now: u64) -> String {
        let round = self.round(now);
        let active = (self.active)(round);
        let ratio = |parts: u64| format!("{}.{:06}", parts / 1_000_000, parts % 1_000_000);
        let mut page = String::new();
        let mut line = |family: &str, value: &str| {
            page.push_str(&format!("# TYPE {family} gauge\n{family}{{gpu=\"0\",UUID=\"{A100}\"}} {value}\n"));
        };
        line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", &ratio(active));
        line("DCGM_FI_PROF_SM_ACTIVE", &ratio(active));
        line("DCGM_FI_PROF_SM_OCCUPANCY", &ratio(active / 2));
        if self.energy {
            line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", &(1_000_000 + round * 1500).to_string());
        }
        page
    }
}
