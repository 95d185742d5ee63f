//! The source: when the page is read, whose each device is, and what is said of it.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use warpmeter_core::fact::{Averages, Discard, Fact, Health, HealthState};
use warpmeter_core::identity::DeviceId;
use warpmeter_core::inventory::{Counter, Gpu, Inventory};
use warpmeter_core::time::{MonoNs, SECOND};

use super::fetch::{Fault, fetch};
use super::figures::{Figures, Left};
use super::follow::{Beat, Follow, Manner, Pace};
use super::gaps::{Gap, Gaps};
use super::options::DcgmOptions;
use super::page::{Field, Page, Place, Shown, parse};
use super::scale::{Known, Scale};
use crate::clock;

/// The longest from one try to the next.
const LONGEST: Duration = Duration::from_mins(1);
/// How much later than it was due a look may be, whatever the period.
const SLACK: u64 = SECOND / 2;

/// Reads a neighbouring exporter's page, for the GPUs of which it is the authority.
#[derive(Debug)]
pub struct DcgmSource {
    options: DcgmOptions,
    inventories: Receiver<Inventory>,
    gpus: Option<Vec<Gpu>>,
    due: Option<Instant>,
    /// Why the last round failed, and how many did in a row.
    failed: Option<(Fault, u32)>,
    /// When the page was looked at last.
    looked: Option<MonoNs>,
    followed: BTreeMap<DeviceId, Follow>,
    /// Whether its ratios are ratios.
    scale: Scale,
    gaps: Gaps,
}

impl DcgmSource {
    /// A source that has asked nothing yet, and is told what GPUs there are by `inventories`.
    pub fn new(options: DcgmOptions, inventories: Receiver<Inventory>) -> Self {
        let scale = Scale::new(options.ratios);
        Self {
            options,
            inventories,
            gpus: None,
            due: None,
            failed: None,
            looked: None,
            followed: BTreeMap::new(),
            scale,
            gaps: Gaps::default(),
        }
    }

    /// Reads the page if that is due, and appends what became known.
    ///
    /// To be called often, from a thread that runs no async code. Takes the timeout at most, and returns at once while
    /// nothing is due, or nothing needs it. Each round that did ask also appends a [`Fact::Poll`].
    pub fn poll(&mut self, out: &mut Vec<Fact>) {
        self.hear();
        if !self.needed() || self.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        let began = clock::now();
        let fetched = fetch(&self.options);
        let took = clock::now().since(began);
        self.round(fetched, began.plus(took / 2), out);
        let wait = match &self.failed {
            None => self.options.period,
            Some((_, failures)) => (self.options.period * (1 << failures.min(&6))).min(LONGEST),
        };
        self.due = Some(Instant::now() + wait);
        out.push(Fact::Poll { took, answered: self.failed.is_none() });
    }

    /// Takes note of what GPUs there are now.
    pub(super) fn hear(&mut self) {
        if let Some(inventory) = self.inventories.try_iter().last() {
            // What is missing of new ones is said at once.
            if self.failed.is_none() {
                self.due = None;
            }
            self.gpus = Some(inventory.gpus);
        }
    }

    /// What came of a round, in which the page was looked at at `now`.
    pub(super) fn round(&mut self, fetched: Result<Bytes, Fault>, now: MonoNs, out: &mut Vec<Fact>) {
        match fetched {
            Ok(bytes) => {
                self.failed = None;
                self.take(&parse(&bytes), now, out);
                self.looked = Some(now);
            }
            Err(fault) => {
                let failures = self.failed.as_ref().map_or(0, |(_, failures)| *failures).saturating_add(1);
                self.failed = Some((fault, failures));
                self.scale.forget();
            }
        }
    }

    /// The GPUs whose SM figures are this exporter's to give.
    fn own(&self) -> impl Iterator<Item = &Gpu> {
        let gpus = self.gpus.iter().flatten();
        gpus.filter(|gpu| gpu.down.is_none() && gpu.authority.sm == Some(Counter::Dcgm))
    }

    /// Whether the page is of any use, as far as is known.
    fn needed(&self) -> bool {
        self.own().next().is_some()
    }

    fn pace(&self) -> Pace {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Pace { interval: nanos(self.options.interval), period: nanos(self.options.period) }
    }

    fn take(&mut self, page: &Page, now: MonoNs, out: &mut Vec<Fact>) {
        let mut left = Left::default();
        if page.unread > 0 {
            left.discarded.insert(Discard::Garbage, page.unread);
        }
        let mut gaps = Gaps::default();
        let mut own: BTreeMap<DeviceId, (Figures, Beat)> = BTreeMap::new();
        let mut foreign = 0;
        for (place, shown) in &page.devices {
            let Some(gpu) = self.gpus.iter().flatten().find(|gpu| gpu.id.as_str() == place.gpu) else {
                foreign += 1;
                continue;
            };
            if gpu.authority.sm != Some(Counter::Dcgm) || gpu.down.is_some() {
                continue;
            }
            let Some(device) = device(gpu, place, &mut gaps) else { continue };
            let beat = beat(page, place);
            let figures = judge(shown, &device, &mut left, &mut gaps);
            own.insert(device, (figures, beat));
        }
        self.missing(page, foreign, &own, &mut gaps);
        self.scale.look(page);
        match self.scale.known() {
            Some(Known::Ratios) => {}
            Some(Known::Percentages) => {
                gaps.say(
                    "a ratio is far above 1, so these are percentages, and small ones cannot be told from ratios: nothing \
                     of the page is taken until the exporter is started anew; have it show DCGM_FI_PROF_… as DCGM gives \
                     them, from 0 to 1",
                );
                own.clear();
            }
            None if own.values().all(|(figures, _)| figures.is_empty() || figures.is_idle()) => {}
            None => gaps.say(
                "nothing has shown yet whether its ratios are from 0 to 1 or percentages, so those above 0 are not taken: \
                 three collections running of an engine at 1, or at 0.05 or more beside a DCGM_FI_DEV_GPU_UTIL of 10 or \
                 more, settle it, or [dcgm] scale = \"ratio\"",
            ),
        }
        self.follow(own, now, &mut gaps, out);
        out.extend(left.discarded.into_iter().map(|(reason, count)| Fact::Discarded { reason, count }));
        self.gaps = gaps;
    }

    /// Devices of which the page has nothing.
    fn missing(
        &self,
        page: &Page,
        foreign: usize,
        shown: &BTreeMap<DeviceId, (Figures, Beat)>,
        gaps: &mut Gaps,
    ) {
        if foreign > 0 && foreign == page.devices.len() {
            gaps.say(
                "none of the GPUs of the page is on this node: it is the exporter of another; name this node's in \
                 [dcgm] url, or set internalTrafficPolicy: Local on its Service",
            );
            return;
        }
        for gpu in self.own() {
            let ids: Vec<DeviceId> = match &gpu.mig {
                None => vec![DeviceId { gpu: gpu.id.clone(), mig: None }],
                Some(mig) => {
                    let usable = mig.instances.iter().filter(|instance| instance.compute_instance.is_some());
                    usable.map(|it| DeviceId { gpu: gpu.id.clone(), mig: Some(it.id.clone()) }).collect()
                }
            };
            let divided = |id: &DeviceId| {
                let mig = gpu.mig.as_ref().zip(id.mig.as_ref());
                mig.is_some_and(|(mig, id)| {
                    let it = mig.instances.iter().find(|instance| instance.id == *id);
                    let same = |gi| mig.instances.iter().filter(|other| other.gpu_instance == gi).count();
                    it.is_some_and(|it| same(it.gpu_instance) > 1)
                })
            };
            for id in ids.iter().filter(|id| !shown.contains_key(id) && !divided(id)) {
                gaps.of(Gap::Absent, name(id));
            }
        }
    }

    fn follow(
        &mut self,
        own: BTreeMap<DeviceId, (Figures, Beat)>,
        now: MonoNs,
        gaps: &mut Gaps,
        out: &mut Vec<Fact>,
    ) {
        let pace = self.pace();
        // After a longer pause it is not known when values were exchanged.
        let longest = (pace.period * 5 / 2).max(pace.period + SLACK);
        let before = self.looked.filter(|before| now.since(*before) <= longest);
        self.followed.retain(|device, _| before.is_some() && own.contains_key(device));
        for (device, (figures, beat)) in own {
            let Some((followed, before)) = self.followed.get_mut(&device).zip(before) else {
                self.followed.insert(device, Follow::new(figures, beat, now));
                continue;
            };
            let complete = followed.look(figures, beat, before, now, pace);
            // Of what has none already something else is said.
            match followed.manner(now, pace) {
                _ if figures.means.sm_active.is_none() => {}
                Manner::Well => {}
                Manner::Stale => gaps.of(Gap::Stale, name(&device)),
                Manner::Silent => gaps.of(Gap::Silent, name(&device)),
                Manner::Hasty => gaps.of(Gap::Hasty, name(&device)),
            }
            // Nothing is nothing on every scale, and bytes are bytes.
            let sure = self.scale.known() == Some(Known::Ratios);
            let believed =
                |figures: Figures| if sure || figures.is_idle() { figures } else { figures.traffic() };
            let complete = complete.map(|(during, figures)| (during, believed(figures)));
            let Some((during, figures)) = complete.filter(|(_, figures)| !figures.is_empty()) else {
                continue;
            };
            let mut means = figures.means;
            if device.mig.is_some() {
                (means.pcie_receive, means.pcie_transmit) = (None, None);
            }
            out.push(Fact::Averages(Averages { device, during, means }));
        }
    }

    /// How well the last round went.
    pub fn health(&self) -> Health {
        let health = |state, reason: String| Health { state, reason };
        let Some(gpus) = &self.gpus else {
            return health(HealthState::Off, "it is not known yet which GPUs there are".to_owned());
        };
        if !self.needed() {
            let reason = if gpus.is_empty() {
                "there is no GPU that needs the DCGM exporter".to_owned()
            } else {
                format!("no GPU needs the DCGM exporter, which is not read: {}", elsewhere(gpus.iter()))
            };
            return health(HealthState::Off, reason);
        }
        match (&self.failed, self.looked) {
            (Some((fault, _)), _) => health(HealthState::Down, fault.to_string()),
            (None, None) => health(HealthState::Down, format!("{} has not been read yet", self.options.url)),
            (None, Some(_)) => {
                let missing = self.gaps.sentences();
                if !missing.is_empty() {
                    return health(HealthState::Degraded, format!("{}: {missing}", self.options.url));
                }
                let others = gpus.iter().filter(|gpu| gpu.authority.sm != Some(Counter::Dcgm));
                let others = elsewhere(others);
                let reason =
                    if others.is_empty() { others } else { format!("not needed for all GPUs: {others}") };
                health(HealthState::Up, reason)
            }
        }
    }
}

/// Which counters give the SM figures of GPUs that do not need the exporter.
fn elsewhere<'g>(gpus: impl Iterator<Item = &'g Gpu>) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for gpu in gpus {
        let what =
            if gpu.down.is_some() { "down" } else { gpu.authority.sm.map_or("nothing", Counter::label) };
        *counts.entry(what).or_default() += 1;
    }
    let of = |(what, count): (&str, u32)| format!("{count} with {what}");
    counts.into_iter().map(of).collect::<Vec<_>>().join(", ")
}

/// The device that the page means.
fn device(gpu: &Gpu, place: &Place, gaps: &mut Gaps) -> Option<DeviceId> {
    let whole = DeviceId { gpu: gpu.id.clone(), mig: None };
    match (&gpu.mig, place.instance) {
        (None, None) => Some(whole),
        // The board of a GPU in MIG mode is nobody's device.
        (Some(_), None) => None,
        (None, Some(instance)) => {
            gaps.of(Gap::NoInstance, format!("{}/{instance}", gpu.id));
            None
        }
        (Some(mig), Some(instance)) => {
            let mut found = mig.instances.iter().filter(|known| known.gpu_instance == instance);
            match (found.next(), found.next()) {
                (Some(only), None) => Some(DeviceId { mig: Some(only.id.clone()), ..whole }),
                (Some(_), Some(_)) => {
                    gaps.of(Gap::Divided, format!("{}/{instance}", gpu.id));
                    None
                }
                (None, _) => {
                    gaps.of(Gap::NoInstance, format!("{}/{instance}", gpu.id));
                    None
                }
            }
        }
    }
}

/// What moves whenever a GPU is collected: its own, also for its instances.
fn beat(page: &Page, place: &Place) -> Beat {
    let whole = Place { instance: None, ..place.clone() };
    let places = [Some(place), Some(&whole)];
    let shown = |field: Field| {
        let mut values =
            places.iter().flatten().filter_map(|place| page.devices.get(*place)?.get(field as usize));
        values.find_map(|shown| match shown {
            Shown::Value(value) => Some(value.to_bits()),
            Shown::Nothing | Shown::Several => None,
        })
    };
    [shown(Field::Energy), shown(Field::Power)]
}

/// A device's figures, and what is wrong with them.
fn judge(shown: &[Shown; Field::COUNT], device: &DeviceId, left: &mut Left, gaps: &mut Gaps) -> Figures {
    let (figures, own) = Figures::of(shown);
    for (reason, count) in own.discarded {
        *left.discarded.entry(reason).or_default() += count;
    }
    let gap = if own.several {
        Some(Gap::Several)
    } else if figures.conflict() {
        *left.discarded.entry(Discard::Conflict).or_default() += 1;
        Some(Gap::Conflict)
    } else if figures.means.sm_active.is_some() {
        None
    } else if shown[Field::SmActive as usize] == Shown::Nothing {
        Some(Gap::Unlisted)
    } else {
        Some(Gap::Blank)
    };
    if let Some(gap) = gap {
        gaps.of(gap, name(device));
    }
    if figures.conflict() { figures.traffic() } else { figures }
}

/// A device as it is named in what is said: an instance by its own id.
fn name(device: &DeviceId) -> String {
    device.mig.as_ref().map_or_else(|| device.gpu.to_string(), ToString::to_string)
}
