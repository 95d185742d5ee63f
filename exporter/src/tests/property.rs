//! Valid text whatever things are called and however large the amounts are.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use warpmeter_core::identity::{ContainerId, Owner};
use warpmeter_core::price::Money;
use warpmeter_core::state::State;
use warpmeter_core::view::View;

use super::{parse, sample};
use crate::catalogue::Level;
use crate::encode::Encoder;

/// Names with everything that has a meaning in the format, and anything else.
fn name() -> impl Strategy<Value = String> {
    let nasty = vec(
        prop_oneof![
            Just("\\".to_owned()),
            Just("\"".to_owned()),
            Just("\n".to_owned()),
            Just("\r\n".to_owned()),
            Just("\0".to_owned()),
            Just("\\n".to_owned()),
            Just("\"} 1\n".to_owned()),
            Just("# TYPE x y\n".to_owned()),
            Just("{a=\"b\",}".to_owned()),
            Just("\u{2028}\u{feff}é漢🦀".to_owned()),
            any::<char>().prop_map(String::from),
        ],
        0..12,
    );
    prop_oneof![
        8 => nasty.prop_map(|parts| parts.concat()),
        1 => any::<char>().prop_map(|c| c.to_string().repeat(4096)),
    ]
}

const NAMES: [&str; 5] = ["namespace", "pod", "pod_uid", "container", "gpu_uuid"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_come_back_as_they_were(names in vec((name(), name(), name(), name()), 1..5)) {
        let mut view = View { node: names[0].0.clone(), currency: names[0].1.clone(), ..View::default() };
        let mut wanted = BTreeSet::new();
        for (number, (namespace, pod, container, gpu)) in names.into_iter().enumerate() {
            let uid = format!("{number}{pod}");
            let mut account =
                sample::account(sample::pod_owner(&uid, &container), &gpu, Some(&container), State::Active, 1);
            account.pod = Some((Arc::from(&*namespace), Arc::from(&*pod)));
            account.costs = Some([Money(1); 4]);
            view.accounts.push(account);
            let owner = Owner::Container(ContainerId::new(&*uid));
            view.accounts.push(sample::account(owner, &gpu, None, State::Active, 1));
            let mut info = sample::pod(&uid);
            info.name = Some((Arc::from(&*namespace), Arc::from(&*pod)));
            info.info.team = Arc::from(&*container);
            view.pods.push(info);
            wanted.insert([namespace, pod, uid, container, gpu]);
        }
        let series = parse::exposition(&Encoder::new(Level::Full).encode(&view));
        let used = series.iter().filter(|series| series.name == "warpmeter_pod_gpu_used_seconds_total");
        let found: BTreeSet<_> = used
            .map(|series| NAMES.map(|label| series.label(label).to_owned()))
            .collect();
        prop_assert_eq!(found, wanted);
        let infos: Vec<_> = series.iter().filter(|series| series.name == "warpmeter_pod_info").collect();
        prop_assert_eq!(infos.len(), view.pods.len());
        prop_assert!(infos.iter().all(|info| info.label("node") == view.node));
    }

    #[test]
    fn counters_never_fall_in_the_text(nanos: u64, more: u64, money: u128) {
        let later = nanos.saturating_add(more);
        prop_assert!(crate::units::seconds(later) >= crate::units::seconds(nanos));
        let dearer = Money(money.saturating_add(u128::from(more)));
        prop_assert!(crate::units::money(dearer) >= crate::units::money(Money(money)));
        prop_assert!(crate::units::money(dearer).is_finite());
    }

    #[test]
    fn amounts_of_any_size_are_valid(nanos in any::<u64>(), money in any::<u128>()) {
        let mut view = sample::view();
        for account in &mut view.accounts {
            account.used = nanos;
            account.costs = Some([Money(money); 4]);
        }
        view.gpus[0].totals.pcie_receive = Some(money);
        view.conservation_error = nanos;
        parse::exposition(&Encoder::new(Level::Full).encode(&view));
    }
}
