//! The source over pages as an exporter would show them at given times.

mod exporter;
mod fetching;
mod pages;
mod scales;
mod times;

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use hyper::body::Bytes;
use warpmeter_core::fact::{Averages, Discard, Fact, Health, HealthState};
use warpmeter_core::identity::{GpuId, MigId};
use warpmeter_core::inventory::{Authority, Counter, Gpu, Instance, Inventory, Mig};
use warpmeter_core::time::{MonoNs, SECOND};

use super::fetch::Fault;
use super::{DcgmOptions, DcgmSource, Endpoint};

/// The page of an exporter with the default counters and those of SMs: a T4 that two pods share, an A100, and an A100
/// in MIG mode.
const PAGE: &str = include_str!("../../../tests/fixtures/dcgm/page.prom");
const T4: &str = "GPU-5a5a7118-e550-79a1-597e-7631e126c57a";
const A100: &str = "GPU-8f6d1c1e-2f5b-4c2e-9a64-0d9c3b1f7e21";
const MIG: &str = "GPU-c3b8a7d0-91e4-4f0d-8f7a-6b2e5d4c3a10";

fn gpu(uuid: &str, sm: Option<Counter>) -> Gpu {
    Gpu {
        id: GpuId::new(uuid),
        index: None,
        minor: None,
        pci_bus_id: String::new(),
        model: String::new(),
        memory_bytes: None,
        memory_bus: None,
        link: None,
        down: None,
        mig: None,
        authority: Authority { sm, ..Authority::default() },
    }
}

/// A GPU in MIG mode with these GPU and compute instances.
fn mig(uuid: &str, instances: &[(u32, u32)]) -> Gpu {
    let instance = |(gpu_instance, compute_instance): &(u32, u32)| Instance {
        id: MigId::new(format!("MIG-{gpu_instance}-{compute_instance}")),
        gpu_instance: *gpu_instance,
        compute_instance: Some(*compute_instance),
        profile: "1g.10gb".into(),
        slices: 1,
        memory_bytes: None,
        placement: None,
    };
    let instances = instances.iter().map(instance).collect();
    Gpu { mig: Some(Mig { slices: 7, instances, creatable_slices: 0 }), ..gpu(uuid, Some(Counter::Dcgm)) }
}

/// A source on a node with these GPUs.
struct Desk {
    source: DcgmSource,
    told: Sender<Inventory>,
    facts: Vec<Fact>,
}

impl Desk {
    /// An exporter that is known to give ratios.
    fn new(gpus: &[Gpu], interval: u64, period: u64) -> Self {
        Self::with(gpus, interval, period, true)
    }

    /// One of which nothing is known.
    fn unknown(gpus: &[Gpu]) -> Self {
        Self::with(gpus, 30 * SECOND, 5 * SECOND, false)
    }

    fn with(gpus: &[Gpu], interval: u64, period: u64, ratios: bool) -> Self {
        let url = Endpoint::parse("http://127.0.0.1:1").unwrap();
        let options = DcgmOptions {
            interval: Duration::from_nanos(interval),
            period: Duration::from_nanos(period),
            timeout: Duration::from_millis(1),
            ratios,
            ..DcgmOptions::new(url)
        };
        let (told, inventories) = channel();
        let mut desk = Self { source: DcgmSource::new(options, inventories), told, facts: Vec::new() };
        desk.list(gpus);
        desk
    }

    /// The driver lists these from now on.
    fn list(&mut self, gpus: &[Gpu]) {
        self.told.send(Inventory { driver: None, gpus: gpus.to_vec() }).unwrap();
        self.source.hear();
    }

    /// The page shows this at `now`.
    fn look(&mut self, page: &str, now: u64) {
        self.source.round(Ok(Bytes::copy_from_slice(page.as_bytes())), MonoNs(now), &mut self.facts);
    }

    /// The page cannot be read at `now`.
    fn fail(&mut self, now: u64) {
        let fault = Fault::Start(std::io::Error::other("a test"));
        self.source.round(Err(fault), MonoNs(now), &mut self.facts);
    }

    fn health(&self) -> Health {
        self.source.health()
    }

    /// Looks twice at a page, which is enough for everything to be said of it.
    fn said(page: &str, gpus: &[Gpu]) -> Health {
        let mut desk = Self::new(gpus, 30 * SECOND, 5 * SECOND);
        desk.look(page, 100 * SECOND);
        desk.look(page, 105 * SECOND);
        desk.health()
    }

    fn averages(&mut self) -> Vec<Averages> {
        let averages = |fact| if let Fact::Averages(averages) = fact { Some(averages) } else { None };
        std::mem::take(&mut self.facts).into_iter().filter_map(averages).collect()
    }

    fn discarded(&self, wanted: Discard) -> u64 {
        let count = |fact: &Fact| match fact {
            Fact::Discarded { reason, count } if *reason == wanted => *count,
            _ => 0,
        };
        self.facts.iter().map(count).sum()
    }
}

fn assert_says(health: &Health, state: HealthState, words: &[&str]) {
    assert_eq!(health.state, state, "{}", health.reason);
    for word in words {
        assert!(health.reason.contains(word), "{word:?} is not in {:?}", health.reason);
    }
}
