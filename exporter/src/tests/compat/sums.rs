//! Whatever is used by whom, the series of a device add up to the device.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use warpmeter_core::ratio::Ppb;
use warpmeter_core::split::Split;
use warpmeter_core::time::SECOND;
use warpmeter_core::view::{Activity, View};

use super::super::{parse, sample};
use super::{advance, close, of};
use crate::compat::Dcgm;

/// Totals of a device and of those on it that only grow, as a ledger's do.
fn grow(view: &mut View, amounts: &[u64], weights: &[u64]) {
    let mut amounts = amounts.iter().copied().cycle();
    let mut weights = weights.iter().copied().cycle();
    for gpu in view.gpus.iter_mut().filter(|gpu| gpu.up) {
        gpu.elapsed += SECOND;
        let mut energy_weights = Vec::new();
        for device in &mut gpu.devices {
            device.profiled += SECOND;
            let amount = amounts.next().unwrap() % SECOND;
            advance(&mut device.activity, amount);
            let on = view.accounts.iter().enumerate().filter(|(_, account)| account.device == device.id);
            let on: Vec<Option<usize>> = on.map(|(place, _)| Some(place)).chain([None]).collect();
            let weighted: Vec<_> = on.iter().map(|place| (*place, weights.next().unwrap())).collect();
            energy_weights.extend(weighted.iter().copied());
            for (place, share) in Split::by_weight(amount, weighted).into_iter().flat_map(Split::into_parts) {
                match place {
                    Some(place) => {
                        view.accounts[place].used += share;
                        advance(&mut view.accounts[place].activity, share);
                    }
                    None => device.usage.used += share,
                }
            }
        }
        let energy = amounts.next().unwrap() % 1_000_000_000;
        *gpu.totals.energy_uj.get_or_insert(0) += energy;
        gpu.board.power_mw = Some(amounts.next().unwrap() % 1_000_000);
        for (place, share) in Split::by_weight(energy, energy_weights).into_iter().flat_map(Split::into_parts)
        {
            if let Some(place) = place {
                *view.accounts[place].energy_uj.get_or_insert(0) += share;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn series_of_a_device_add_up_to_the_device(
        amounts in proptest::collection::vec(any::<u64>(), 1..40),
        weights in proptest::collection::vec(0..u64::from(u32::MAX), 1..20),
        ended in proptest::collection::vec(any::<bool>(), 6),
        held in proptest::collection::vec(0..=100_u32, 6),
        windows in 1..4_usize,
    ) {
        let mut view = sample::view();
        for ((account, ended), held) in view.accounts.iter_mut().zip(ended).zip(held) {
            account.ended = ended;
            account.allocated = Ppb::percent(held);
        }
        let mut dcgm = Dcgm::default();
        let mut before = view.clone();
        let mut text = dcgm.encode(&Arc::new(view.clone()));
        for window in 0..windows {
            before = view.clone();
            grow(&mut view, &amounts[window % amounts.len()..], &weights);
            text = dcgm.encode(&Arc::new(view.clone()));
        }
        let series = parse::any_names(&text);
        let mut sums: BTreeMap<(&str, &str, &str), f64> = BTreeMap::new();
        for one in &series {
            *sums.entry((&one.name, one.label("UUID"), one.label("GPU_I_ID"))).or_default() += one.value;
        }
        for (gpu, old) in view.gpus.iter().zip(&before.gpus).filter(|(gpu, _)| gpu.up) {
            let uuid = gpu.gpu.id.as_str();
            for (device, old) in gpu.devices.iter().zip(&old.devices) {
                let id = device.instance.as_ref().map(|instance| instance.gpu_instance.to_string());
                let id = id.as_deref().unwrap_or_default();
                let (now, then) = (device.activity, old.activity);
                let gain = |pick: fn(&Activity) -> Option<u64>| {
                    pick(&now).unwrap() - pick(&then).unwrap_or(0)
                };
                let engine = crate::units::share(gain(|a| a.engine), SECOND);
                prop_assert!(close(sums[&("DCGM_FI_PROF_GR_ENGINE_ACTIVE", uuid, id)], engine));
                let dram = crate::units::share(gain(|a| a.dram), SECOND);
                if let Some(sum) = sums.get(&("DCGM_FI_PROF_DRAM_ACTIVE", uuid, id)) {
                    prop_assert!(close(*sum, dram), "{sum} {dram}");
                }
                if device.id.mig.is_none() {
                    prop_assert!(close(sums[&("DCGM_FI_DEV_GPU_UTIL", uuid, id)], engine * 100.0));
                }
            }
            let on_gpu = |name: &str| -> f64 {
                of(&series, name, uuid).into_iter().map(|series| series.value).sum()
            };
            let power = crate::units::watts(gpu.board.power_mw.unwrap());
            prop_assert!(close(on_gpu("DCGM_FI_DEV_POWER_USAGE"), power));
            let energy = crate::units::millijoules(gpu.totals.energy_uj.unwrap());
            prop_assert!(close(on_gpu("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), energy));
        }
    }
}
