//! What things cost while prices change.

use proptest::prelude::*;
use warpmeter_core::fact::{Fact, GrantPart, Sample, Source};
use warpmeter_core::fold::Fold;
use warpmeter_core::price::{Money, NodePrice, Price, Prices, Quote};
use warpmeter_core::settings::Settings;
use warpmeter_core::time::SECOND;
use warpmeter_core::view::View;

use crate::node::{
    Random, gpu, host_up, inventory, mig, part, pod, pods, process, reading, sample, settings, tick, whole,
};

const A: &str = "GPU-a";
const B: &str = "GPU-b";

fn quote(micros: u64) -> Quote {
    Quote::configured(Price(micros))
}

fn flat(micros: u64) -> Prices {
    Prices { currency: "USD".into(), other: Some(quote(micros)), ..Prices::default() }
}

fn of_node(micros: u64, gpus: Option<u32>, host_share: u32) -> Prices {
    let node = NodePrice { quote: quote(micros), gpus, host_share };
    Prices { currency: "USD".into(), node: Some(node), ..Prices::default() }
}

fn changed(at: u64, prices: &Prices) -> Sample {
    sample(at, Source::Prices, Fact::Prices(Box::new(prices.clone())))
}

/// A node of one or two GPUs, seen from second 1 on.
fn fold(prices: Prices, gpus: &[&str]) -> Fold {
    let mut fold = Fold::new(Settings { prices, ..settings() });
    fold.apply(host_up());
    let gpus: Vec<_> = gpus.iter().map(|name| gpu(name)).collect();
    fold.apply(sample(SECOND, Source::Nvidia, inventory(&gpus)));
    fold.apply(sample(SECOND, Source::Pods, pods(&[pod("p", &[(whole(A), GrantPart::Whole)])], &[])));
    fold.apply(sample(SECOND, Source::Host, process(7, 2, "p")));
    fold
}

fn second(fold: &mut Fold, name: &str, end: u64) {
    let parts = vec![part(None, Some(50), &[7])];
    fold.apply(sample(end * SECOND, Source::Nvidia, reading(name, (end - 1) * SECOND, end * SECOND, parts)));
}

fn gpu_cost(view: &View) -> u128 {
    let devices =
        view.gpus.iter().flat_map(|gpu| &gpu.devices).flat_map(|device| device.costs.into_iter().flatten());
    let residues = view.gpus.iter().filter_map(|gpu| gpu.residue);
    let residues = residues.flat_map(|rest| [rest.unallocated_cost, rest.unallocatable_cost]);
    devices.chain(residues.flatten()).map(|money| money.0).sum()
}

fn closed(fold: &mut Fold, at: u64) -> View {
    fold.apply(tick(at));
    fold.view()
}

#[test]
fn a_window_in_which_the_price_changes_has_the_old_one_and_the_next_the_new_one() {
    let mut fold = fold(flat(7), &[A]);
    for end in 2..=4 {
        second(&mut fold, A, end);
    }
    // In the middle of the third second.
    fold.apply(changed(2 * SECOND + SECOND / 2, &flat(11)));
    let view = closed(&mut fold, 5 * SECOND);
    let second = u128::from(SECOND);
    assert_eq!(gpu_cost(&view), (7 + 7 + 11) * second, "seconds 1 to 2, 2 to 3 and 3 to 4");
    let pod: u128 = view.accounts[0].costs.unwrap().iter().map(|money| money.0).sum();
    let namespace: u128 = view.namespaces[0].costs.unwrap().iter().map(|money| money.0).sum();
    assert_eq!((pod, namespace), (gpu_cost(&view), gpu_cost(&view)));
    assert_eq!(view.gpus[0].price(), Some(Price(11)));
}

#[test]
fn a_price_from_the_start_of_a_window_on_is_that_windows() {
    let mut fold = fold(flat(7), &[A]);
    second(&mut fold, A, 2);
    second(&mut fold, A, 3);
    fold.apply(changed(2 * SECOND, &flat(11)));
    assert_eq!(gpu_cost(&closed(&mut fold, 4 * SECOND)), 18 * u128::from(SECOND));
}

#[test]
fn a_price_that_is_no_longer_known_leaves_what_was_charged() {
    let mut fold = fold(flat(7), &[A]);
    second(&mut fold, A, 2);
    fold.apply(changed(2 * SECOND, &Prices { currency: "USD".into(), ..Prices::default() }));
    second(&mut fold, A, 3);
    let view = closed(&mut fold, 4 * SECOND);
    assert_eq!((gpu_cost(&view), view.gpus[0].price()), (7 * u128::from(SECOND), None));
    assert_eq!(view.gpus[0].elapsed, 2 * SECOND);
}

#[test]
fn gpus_and_host_of_a_node_cost_what_the_node_costs_through_every_change() {
    // Prices that do not divide evenly, with and without a share of the host.
    let mut fold = fold(of_node(1_000_003, None, 0), &[A, B]);
    for end in 2..=6 {
        second(&mut fold, A, end);
        second(&mut fold, B, end);
    }
    fold.apply(changed(3 * SECOND, &of_node(999_999, Some(2), 123_457)));
    fold.apply(changed(5 * SECOND, &of_node(7, Some(2), 999_999)));
    // The watermark is at the end of the last window.
    let view = closed(&mut fold, 6 * SECOND + SECOND / 4);
    let node = (2 * 1_000_003 + 2 * 999_999 + 7) * u128::from(SECOND);
    assert_eq!(gpu_cost(&view) + view.host_cost.unwrap().0, node);
}

#[test]
fn a_lost_gpu_does_not_make_the_others_dearer() {
    let mut fold = fold(of_node(1000, None, 0), &[A, B]);
    let before = closed(&mut fold, 2 * SECOND);
    fold.apply(sample(2 * SECOND, Source::Nvidia, inventory(&[gpu(A)])));
    let after = closed(&mut fold, 4 * SECOND);
    assert_eq!([before.gpus[0].price(), after.gpus[0].price()], [Some(Price(500)); 2]);
}

#[test]
fn more_gpus_than_the_node_was_said_to_have_do_not_cost_more_than_the_node() {
    let mut fold = fold(of_node(1000, Some(1), 0), &[A, B]);
    assert_eq!(closed(&mut fold, 2 * SECOND).gpus[0].price(), Some(Price(500)));
}

#[test]
fn the_host_costs_nothing_of_its_own_where_gpus_have_prices_of_their_own() {
    let mut prices = of_node(1000, None, 500_000);
    prices.models = vec![("H100".into(), quote(7))];
    let mut fold = fold(prices, &[A]);
    second(&mut fold, A, 2);
    let view = closed(&mut fold, 4 * SECOND);
    assert_eq!((view.host_cost, view.gpus[0].price()), (None, Some(Price(7))));
}

#[test]
fn another_currency_is_refused_while_it_runs() {
    let mut fold = fold(flat(7), &[A]);
    fold.apply(changed(2 * SECOND, &Prices { currency: "EUR".into(), ..flat(1) }));
    let view = closed(&mut fold, 4 * SECOND);
    assert_eq!((view.currency.as_str(), view.gpus[0].price()), ("USD", Some(Price(7))));
    let source = view.sources.iter().find(|source| source.source == Source::Prices).unwrap();
    assert_eq!(source.discarded.iter().sum::<u64>(), 1);
}

#[test]
fn energy_costs_its_price_to_the_microjoule_for_gpu_pod_and_namespace() {
    let mut prices = flat(7);
    prices.energy = Some(quote(120_001));
    let mut fold = fold(prices, &[A]);
    for end in 2..=5 {
        second(&mut fold, A, end);
    }
    let view = closed(&mut fold, 6 * SECOND);
    let joules = view.gpus[0].totals.energy_uj.unwrap();
    let cost = Money::of_energy(Price(120_001), joules);
    assert!(joules > 0);
    assert_eq!(view.gpus[0].totals.energy_cost, Some(cost));
    let pod = &view.accounts[0];
    assert_eq!(pod.energy_cost, Some(Money::of_energy(Price(120_001), pod.energy_uj.unwrap())));
    assert_eq!(view.namespaces[0].energy_cost, pod.energy_cost);
}

#[test]
fn of_a_gpu_in_slices_every_slice_has_its_part_of_the_nodes_price() {
    let mut fold = Fold::new(Settings { prices: of_node(7_000_001, Some(1), 1), ..settings() });
    let gpu = mig("m", &[3, 2], 1);
    fold.apply(host_up());
    fold.apply(sample(SECOND, Source::Nvidia, inventory(std::slice::from_ref(&gpu))));
    fold.apply(sample(SECOND, Source::Pods, pods(&[], &[])));
    let parts = gpu.mig.unwrap().instances.into_iter().map(|instance| part(Some(instance.id), Some(50), &[]));
    let parts = parts.collect();
    fold.apply(sample(2 * SECOND, Source::Nvidia, reading("m", SECOND, 2 * SECOND, parts)));
    let view = closed(&mut fold, 2 * SECOND + SECOND / 4);
    assert_eq!(gpu_cost(&view) + view.host_cost.unwrap().0, 7_000_001 * u128::from(SECOND));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However often prices change, and in whichever order their facts arrive.
    #[test]
    fn node_time_costs_the_prices_that_were_in_force(seed in any::<u64>()) {
        let mut r = Random(seed);
        let mut price = |at: u64| (at, 1 + r.below(1_000_000_000), u32::try_from(r.below(1_000_000)).unwrap());
        // Changes on the boundaries of windows, where host and GPUs change together.
        let changes: Vec<(u64, u64, u32)> = (1..9).map(&mut price).collect();
        let gpus = 1 + usize::try_from(Random(seed).below(2)).unwrap();
        let names = &[A, B][..gpus];
        let mut fold = fold(of_node(changes[0].1, None, changes[0].2), names);
        let mut facts: Vec<Sample> = changes[1..]
            .iter()
            .map(|(at, micros, share)| changed(at * SECOND, &of_node(*micros, None, *share)))
            .collect();
        for end in 2..=9 {
            for name in names {
                let parts = vec![part(None, Some(50), &[7])];
                facts.push(sample(end * SECOND, Source::Nvidia, reading(name, (end - 1) * SECOND, end * SECOND, parts)));
            }
        }
        let mut r = Random(seed ^ 1);
        for index in (1..facts.len()).rev() {
            facts.swap(index, usize::try_from(r.below(index as u64 + 1)).unwrap());
        }
        for fact in facts {
            fold.apply(fact);
        }
        let view = closed(&mut fold, 9 * SECOND + SECOND / 4);
        let expected: u128 = changes.iter().map(|(_, micros, _)| u128::from(*micros) * u128::from(SECOND)).sum();
        prop_assert_eq!(gpu_cost(&view) + view.host_cost.unwrap().0, expected);
    }
}
