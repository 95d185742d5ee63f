//! What the host source is asked.

use std::sync::mpsc::channel;

use warpmeter_core::fact::{Board, Holder, Part, Reading};
use warpmeter_core::inventory::{Authority, Gpu, Inventory};
use warpmeter_core::time::Interval;

use super::*;

fn gpu(name: &str, down: Option<&str>) -> Gpu {
    Gpu {
        id: GpuId::new(name),
        index: None,
        minor: None,
        pci_bus_id: name.into(),
        model: String::new(),
        memory_bytes: None,
        memory_bus: None,
        link: None,
        down: down.map(str::to_owned),
        mig: None,
        authority: Authority::default(),
    }
}

fn inventory(gpus: &[Gpu]) -> Fact {
    Fact::Inventory(Inventory { driver: None, gpus: gpus.to_vec() })
}

fn reading(name: &str, pids: &[u32]) -> Fact {
    let part = Part {
        processes: Some(pids.iter().map(|pid| Holder { pid: HostPid(*pid), memory: None }).collect()),
        ..Part::default()
    };
    let during = Interval::new(MonoNs(1), MonoNs(2)).unwrap();
    let (gpu, board) = (GpuId::new(name), Board::default());
    Fact::Reading(Box::new(Reading { gpu, during, board, parts: vec![part] }))
}

fn health(state: HealthState) -> Fact {
    Fact::Health(Health { state, reason: String::new() })
}

fn holders(name: &str, pids: &[u32]) -> Wanted {
    Wanted::Holders(GpuId::new(name), pids.iter().copied().map(HostPid).collect())
}

#[test]
fn whoever_had_a_gpu_open_is_not_looked_for_once_it_is_no_longer_read() {
    let (a, b) = (gpu("a", None), gpu("b", None));
    for (source, fact, forgotten) in [
        (Source::Nvidia, inventory(&[a.clone(), b.clone()]), vec![]),
        (Source::Nvidia, inventory(&[gpu("a", Some("left alone")), b.clone()]), vec![holders("a", &[])]),
        (Source::Nvidia, inventory(std::slice::from_ref(&a)), vec![holders("b", &[])]),
        (Source::Nvidia, health(HealthState::Off), vec![holders("a", &[]), holders("b", &[])]),
        (Source::Nvidia, health(HealthState::Down), vec![holders("a", &[]), holders("b", &[])]),
        (Source::Nvidia, health(HealthState::Degraded), vec![]),
        (Source::Host, health(HealthState::Down), vec![]),
    ] {
        let (wanted, asked) = channel();
        let (mut pipeline, _intake) = Pipeline::new(Settings::default(), None, Some(wanted), Arc::default());
        let mut ask = |source, fact| {
            pipeline.ask(&Sample { at: MonoNs(3), source, fact });
            asked.try_iter().collect::<Vec<_>>()
        };
        ask(Source::Nvidia, inventory(&[a.clone(), b.clone()]));
        assert_eq!(ask(Source::Nvidia, reading("a", &[7])), [holders("a", &[7])]);
        assert_eq!(ask(Source::Nvidia, reading("b", &[8])), [holders("b", &[8])]);
        assert_eq!(ask(Source::Nvidia, reading("b", &[8])), [], "it is known");
        assert_eq!(ask(source, fact.clone()), forgotten, "{source:?} {fact:?}");
        let again = if forgotten.contains(&holders("b", &[])) { vec![holders("b", &[8])] } else { vec![] };
        assert_eq!(ask(Source::Nvidia, reading("b", &[8])), again);
    }
}
