//! What holds of every node, however it behaves.

use proptest::prelude::*;
use warpmeter_core::fact::{Fact, Sample, Source};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{DeviceId, Owner, PodUid};
use warpmeter_core::pressure::{Pressure, Throttled};
use warpmeter_core::settings::Settings;
use warpmeter_core::time::SECOND;
use warpmeter_core::view::View;

use crate::node::{Random, random, tick};

/// Runs facts through a fold with a tick every quarter of a second of their time, and long enough after them.
/// `arrive` changes the order in which the facts between two ticks arrive.
fn run(settings: &Settings, facts: &[Sample], mut arrive: impl FnMut(&mut [Sample])) -> (Fold, Vec<View>) {
    let mut fold = Fold::new(settings.clone());
    let mut views = Vec::new();
    let mut facts = facts.to_vec();
    let last = facts.last().map_or(0, |sample| sample.at.0) + 30 * SECOND;
    let mut rest = facts.as_mut_slice();
    let mut now = 0;
    while now < last {
        now += SECOND / 4;
        let ready = rest.iter().take_while(|sample| sample.at.0 <= now).count();
        let (batch, later) = rest.split_at_mut(ready);
        arrive(batch);
        for sample in batch {
            views.extend(fold.apply(sample.clone()));
        }
        views.extend(fold.apply(tick(now)));
        rest = later;
    }
    (fold, views)
}

fn conserves(view: &View) {
    assert_eq!(view.conservation_error, 0);
    for gpu in &view.gpus {
        let devices: u64 = gpu.devices.iter().flat_map(|device| device.states).sum();
        let residue = gpu.residue.map_or(0, |residue| residue.unallocated + residue.unallocatable);
        assert_eq!(devices + residue, gpu.elapsed, "states of {} sum to its time", gpu.gpu.id);
        for device in &gpu.devices {
            let u = device.usage;
            let allocation: u64 = device.states.iter().sum();
            assert_eq!(
                u.used + u.unattributed + u.inactive + u.unknown,
                allocation,
                "both ledgers cover {:?}",
                device.id
            );
            assert_eq!(device.use_evidence.iter().sum::<u64>() + u.unknown, allocation);
            if let Some(costs) = device.costs {
                let money: u128 = costs.iter().map(|money| money.0).sum();
                assert_eq!(
                    money,
                    u128::from(gpu.price().unwrap().0) * u128::from(allocation),
                    "money is time × price"
                );
            }
        }
    }
    for gpu in &view.gpus {
        let own = view.accounts.iter().filter(|account| account.device.gpu == gpu.gpu.id);
        let sum = |of: fn(&warpmeter_core::view::AccountView) -> Option<u64>| {
            own.clone().filter_map(of).sum::<u64>()
        };
        assert!(sum(|account| account.energy_uj) <= gpu.totals.energy_uj.unwrap_or(0));
        assert!(sum(|account| account.idle_energy_uj) <= gpu.totals.idle_energy_uj.unwrap_or(0));
    }
    for account in &view.accounts {
        assert!(account.idle_energy_uj <= account.energy_uj, "idle energy is a part of it");
        assert!(account.activity.sm_active.unwrap_or(0) <= u64::MAX / 2);
        assert_eq!(account.use_evidence.iter().sum::<u64>(), account.used);
        assert_eq!(
            account.bounds.iter().sum::<u64>(),
            account.used,
            "every use has a bound, or it is unknown"
        );
        assert_eq!(account.allocation_evidence.iter().sum::<u64>(), account.states.iter().sum::<u64>());
        assert!(account.states[0] <= account.used, "active time was used");
        assert_eq!(
            account.used - account.states[0],
            account.borrowed,
            "what was used beyond the allocation is borrowed"
        );
    }
}

fn never_falls(before: &View, after: &View) {
    for old in &before.accounts {
        let same =
            |new: &&warpmeter_core::view::AccountView| new.owner == old.owner && new.device == old.device;
        let Some(new) = after.accounts.iter().find(same) else { continue };
        if new.states.iter().sum::<u64>() < old.states.iter().sum::<u64>() {
            // Dropped and begun anew: only an owner that had ended can be.
            assert!(old.ended, "{:?} fell", old.owner);
            continue;
        }
        assert!(new.used >= old.used && new.borrowed >= old.borrowed && new.profiled >= old.profiled);
        assert!(old.states.iter().zip(new.states).all(|(old, new)| new >= *old));
        assert!(old.bounds.iter().zip(new.bounds).all(|(old, new)| new >= *old));
        assert!(old.gaps.is_none() || new.gaps.is_some());
        for (old, new) in old.gaps.iter().zip(&new.gaps) {
            for (old, new) in old.0.iter().zip(new.0) {
                assert!(new.nanos >= old.nanos && old.counts.iter().zip(new.counts).all(|(a, b)| b >= *a));
            }
        }
        assert!(new.energy_uj >= old.energy_uj && new.activity.engine >= old.activity.engine);
    }
    for old in &before.namespaces {
        let new = after.namespaces.iter().find(|new| new.name == old.name).expect("a namespace stays");
        assert!(old.states.iter().zip(new.states).all(|(old, new)| new >= *old));
    }
}

fn totals(view: &View) -> (u64, u64) {
    let held: u64 =
        view.gpus.iter().flat_map(|gpu| &gpu.devices).flat_map(|device| &device.states[..4]).sum();
    let named: u64 = view.namespaces.iter().flat_map(|namespace| namespace.states).sum();
    (held, named)
}

/// Random nodes per property, each of 60 × 3 windows. `just properties` runs more than a million windows.
fn cases() -> u32 {
    option_env!("WARPMETER_PROPERTY_CASES").and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// The same facts, with who holds what told again and again while it does not change.
fn repeating(facts: &[Sample], random: &mut Random) -> Vec<Sample> {
    let mut all = Vec::new();
    let mut told: Option<&Sample> = None;
    for (index, sample) in facts.iter().enumerate() {
        all.push(sample.clone());
        if matches!(sample.fact, Fact::Pods(_)) {
            told = Some(sample);
        }
        let anew = facts[index..].iter().take_while(|later| later.at == sample.at);
        let alone = !anew.clone().any(|later| matches!(later.fact, Fact::Pods(_)));
        if let Some(told) = told.filter(|told| alone && told.at < sample.at && random.chance(30)) {
            all.push(Sample { at: sample.at, ..told.clone() });
        }
    }
    all.sort();
    all
}

/// The same facts, and between them what the cgroups of pods say.
fn pressed(facts: &[Sample], random: &mut Random) -> Vec<Sample> {
    let mut all = facts.to_vec();
    for sample in facts {
        if random.chance(10) {
            let pressure = Pressure {
                pod: PodUid::new(format!("p{}", random.below(5))),
                waited: std::array::from_fn(|_| random.chance(80).then(|| random.number())),
                throttled: vec![Throttled { container: None, nanos: random.number() }],
            };
            all.push(Sample { source: Source::Host, fact: Fact::Pressure(pressure), ..sample.clone() });
        }
    }
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn what_cgroups_say_corroborates_and_changes_no_amount(seed in any::<u64>()) {
        let (settings, facts) = random(seed, 30);
        let amounts = |facts: &[Sample]| {
            let (_, mut views) = run(&settings, facts, |_| {});
            for view in &mut views {
                view.sources.clear();
                for pod in &mut view.pods {
                    let waited = pod.pressure.take().map_or([None; 3], |totals| totals.waited);
                    let found = pod.corroboration.take();
                    assert!(found.is_none_or(|found| found.waited.is_none_or(|more| {
                        waited.iter().flatten().any(|total| *total >= more)
                    })));
                }
            }
            views
        };
        prop_assert_eq!(amounts(&pressed(&facts, &mut Random(seed))), amounts(&facts));
    }

    #[test]
    fn pods_that_are_told_again_change_nothing(seed in any::<u64>()) {
        let (settings, facts) = random(seed, 30);
        let again = repeating(&facts, &mut Random(seed));
        let accounts = |facts: &[Sample]| {
            let (_, mut views) = run(&settings, facts, |_| {});
            // Only that they came is counted.
            for view in &mut views {
                view.sources.clear();
            }
            views
        };
        prop_assert_eq!(accounts(&again), accounts(&facts));
    }

    #[test]
    fn both_ledgers_conserve_and_totals_never_fall(seed in any::<u64>()) {
        let (settings, facts) = random(seed, 60);
        let (_, views) = run(&settings, &facts, |_| {});
        prop_assert!(views.len() > 60);
        for pair in views.windows(2) {
            never_falls(&pair[0], &pair[1]);
        }
        for view in &views {
            conserves(view);
        }
        let last = views.last().unwrap();
        let (held, named) = totals(last);
        // Inferred owners need not be pods, and gone instances take their time along.
        prop_assert!(settings.infer_allocation || named >= held, "namespaces hold all that pods held");
    }

    #[test]
    fn the_order_of_arrival_does_not_matter_within_the_lateness_bound(seed in any::<u64>()) {
        let (settings, facts) = random(seed, 30);
        let (_, straight) = run(&settings, &facts, |_| {});
        let mut r = Random(seed ^ 1);
        let (_, shuffled) = run(&settings, &facts, |batch| {
            for index in (1..batch.len()).rev() {
                let other = usize::try_from(r.below(index as u64 + 1)).unwrap();
                batch.swap(index, other);
            }
        });
        prop_assert_eq!(straight.len(), shuffled.len());
        for (a, b) in straight.iter().zip(&shuffled) {
            prop_assert_eq!(a, b);
        }
    }
}

#[test]
fn a_device_of_the_largest_size_for_ten_years_overflows_nothing() {
    // One posting a day at the highest price and bandwidth that the types are meant for.
    use warpmeter_core::price::{Money, Price};
    let day = 86_400 * SECOND;
    let (mut nanos, mut money, mut bytes) = (0_u64, Money::default(), 0_u128);
    for _ in 0..3660 {
        nanos = nanos.checked_add(8 * day).unwrap();
        money.add(Money::of(Price(1_000_000_000_000), 8 * day));
        bytes += 4_800_000_000_000 * 86_400;
    }
    assert!(nanos < u64::MAX / 2 && money.0 < u128::MAX / 1_000_000 && bytes > u128::from(u64::MAX / 100));
}

#[test]
fn owners_differ_by_container() {
    // A guard for `conserves`: accounts are keyed by owner and device, so a key must not repeat.
    let (settings, facts) = random(7, 60);
    let (fold, _) = run(&settings, &facts, |_| {});
    let view = fold.view();
    let mut keys: Vec<(&Owner, &DeviceId)> =
        view.accounts.iter().map(|account| (&account.owner, &account.device)).collect();
    let count = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), count);
}
