//! Whether a page's ratios are what DCGM gives, from 0 to 1, or percentages that somebody has made of them.
//!
//! A page with a 37 on it is in percent. One on which all are small may be either: 0.4 is 40 % or 0.4 %, and nothing
//! in it says which. So a page is not believed before something shows that it is in ratios:
//!
//! - the configuration says so; or
//! - three collections running of one device would be too unlikely in percent: its engine was at 1 each time, and never
//!   beyond, which is where an engine that does not rest stays; or it was at 0.05 or more each time while the driver's
//!   own utilisation of that moment, which exporters show beside it in percent, was 10 or more. In percent, the engine
//!   was active for at most a hundredth of the interval then, and each such moment would be met once in ten at most.
//!
//! What was found holds for one exporter, and a reading that fails may have been its end.

use std::collections::BTreeMap;

use super::figures::ONE;
use super::page::{Field, Page, Place, Shown};

/// The ratios of a page.
const RATIOS: [Field; 5] = [Field::Engine, Field::SmActive, Field::SmOccupied, Field::Tensor, Field::Dram];

/// From here on a ratio is a percentage. What is between 1 and this may be a counter's fault too.
const PERCENT: f64 = 2.0;
/// Up to here: beyond, it is nothing at all.
const HUNDRED: f64 = 100.5;

/// An engine that does not rest shows this at least, and no more than [`ONE`].
const FULL: f64 = 0.995;
/// An engine that works shows this at least…
const WORK: f64 = 0.05;
/// … while the driver's utilisation is this many percent at least.
const UTILISATION: f64 = 10.0;
/// So many collections running of one device settle it.
const ENOUGH: u32 = 3;

/// What a page's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// From 0 to 1.
    Ratios,
    /// From 0 to 100.
    Percentages,
}

/// What a device showed last, to the bit: its engine, and the driver's utilisation.
type Sight = [Option<u64>; 2];

/// What is known of the scale of one exporter's page.
#[derive(Debug)]
pub(super) struct Scale {
    /// Whether the configuration says that it is in ratios.
    stated: bool,
    known: Option<Known>,
    /// By device: what it showed last, and how many collections running it was at work.
    seen: BTreeMap<Place, (Sight, u32)>,
}

impl Scale {
    /// Of an exporter whose page has not been seen. `stated`: the configuration says that it is in ratios.
    pub(super) const fn new(stated: bool) -> Self {
        Self { stated, known: None, seen: BTreeMap::new() }
    }

    /// Which it is, if that is settled.
    pub(super) fn known(&self) -> Option<Known> {
        self.known.or(self.stated.then_some(Known::Ratios))
    }

    /// The exporter may be another from now on.
    pub(super) fn forget(&mut self) {
        (self.known, self.seen) = (None, BTreeMap::new());
    }

    /// Takes note of a page, of all of its devices.
    pub(super) fn look(&mut self, page: &Page) {
        if self.known == Some(Known::Percentages) {
            return;
        }
        let shown = page.devices.values().flat_map(|shown| RATIOS.map(|field| value(shown, field)));
        let beyond: Vec<f64> = shown.flatten().filter(|value| *value > ONE && *value <= HUNDRED).collect();
        if beyond.iter().any(|value| *value >= PERCENT) {
            self.known = Some(Known::Percentages);
        } else if !beyond.is_empty() {
            self.forget();
        } else if self.known.is_none() {
            self.weigh(page);
        }
    }

    fn weigh(&mut self, page: &Page) {
        self.seen.retain(|place, _| page.devices.contains_key(place));
        for (place, shown) in &page.devices {
            // Where the engine is not shown, SMs do: they are active for no longer.
            let engine = value(shown, Field::Engine).or_else(|| value(shown, Field::SmActive));
            let utilisation = value(shown, Field::Utilisation);
            let sight = [engine, utilisation].map(|value| value.map(f64::to_bits));
            let (last, count) = self.seen.entry(place.clone()).or_default();
            if *last == sight {
                // Not collected anew since.
                continue;
            }
            let full = engine.is_some_and(|engine| (FULL..=ONE).contains(&engine));
            let works = engine.zip(utilisation).is_some_and(|(engine, utilisation)| {
                (WORK..=ONE).contains(&engine) && (UTILISATION..=HUNDRED).contains(&utilisation)
            });
            (*last, *count) = (sight, if full || works { *count + 1 } else { 0 });
            if *count >= ENOUGH {
                self.known = Some(Known::Ratios);
            }
        }
    }
}

fn value(shown: &[Shown; Field::COUNT], field: Field) -> Option<f64> {
    match shown.get(field as usize) {
        Some(Shown::Value(value)) => Some(*value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of one device: its engine, and the driver's utilisation.
    fn page(engine: f64, utilisation: Option<f64>) -> Page {
        let mut shown = [Shown::Nothing; Field::COUNT];
        shown[Field::Engine as usize] = Shown::Value(engine);
        if let Some(utilisation) = utilisation {
            shown[Field::Utilisation as usize] = Shown::Value(utilisation);
        }
        let place = Place { gpu: "GPU-1".into(), instance: None };
        Page { devices: [(place, shown)].into(), unread: 0 }
    }

    fn after(stated: bool, pages: &[(f64, Option<f64>)]) -> Option<Known> {
        let mut scale = Scale::new(stated);
        for (engine, utilisation) in pages {
            scale.look(&page(*engine, *utilisation));
        }
        scale.known()
    }

    #[test]
    fn three_collections_running_of_a_device_at_work_settle_that_it_is_in_ratios() {
        let (at, ratios) = (|engine, utilisation| (engine, Some(utilisation)), Some(Known::Ratios));
        assert_eq!(after(false, &[at(0.4, 41.0), at(0.5, 48.0), at(0.3, 33.0)]), ratios);
        assert_eq!(after(false, &[(0.999, None), (1.0, None), (0.998, None)]), ratios, "it does not rest");
        for unsettled in [
            &[at(0.4, 41.0), at(0.5, 48.0)][..],
            &[at(0.4, 41.0), at(0.4, 41.0), at(0.4, 41.0), at(0.5, 48.0)],
            &[at(0.4, 41.0), at(0.5, 48.0), at(0.3, 0.0), at(0.4, 41.0)],
            &[at(0.04, 41.0), at(0.03, 48.0), at(0.02, 33.0)],
            &[(0.4, None), (0.5, None), (0.6, None), (0.7, None)],
            &[at(0.4, 2_147_483_632.0), at(0.5, 2_147_483_632.0), at(0.6, 2_147_483_632.0)],
            &[at(f64::NAN, 41.0), at(f64::NAN, 42.0), at(f64::NAN, 43.0)],
        ] {
            assert_eq!(after(false, unsettled), None, "{unsettled:?}");
        }
    }

    #[test]
    fn a_percentage_is_known_for_good_and_a_counter_that_is_a_little_too_high_is_none() {
        let percent = Some(Known::Percentages);
        for value in [2.0, 37.2, 100.0, 100.5] {
            assert_eq!(after(false, &[(value, None), (0.4, Some(41.0))]), percent, "{value}");
            assert_eq!(after(true, &[(value, None)]), percent, "{value}: whatever the configuration says");
        }
        let settled = [(0.4, Some(41.0)), (0.5, Some(48.0)), (0.3, Some(33.0))];
        for value in [1.01, 1.9] {
            let pages = [&settled[..], &[(value, Some(99.0))]].concat();
            assert_eq!(after(false, &pages), None, "{value}: it has to show again");
            assert_eq!(after(true, &pages), Some(Known::Ratios), "{value}");
        }
        for value in [-1.0, 101.0, 1e9, f64::INFINITY, 2_147_483_632.0] {
            assert_eq!(
                after(false, &[&settled[..], &[(value, None)]].concat()),
                Some(Known::Ratios),
                "{value}"
            );
        }
    }

    #[test]
    fn what_is_known_of_an_exporter_is_not_taken_over_to_the_next() {
        let mut scale = Scale::new(false);
        scale.look(&page(37.0, None));
        scale.forget();
        assert_eq!(scale.known(), None);
        let mut scale = Scale::new(true);
        scale.look(&page(37.0, None));
        scale.forget();
        assert_eq!(scale.known(), Some(Known::Ratios), "what the configuration says stays");
    }
}
