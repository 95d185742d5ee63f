//! What each GPU's last window brought: the difference of two views' totals, in exact integers.

use std::collections::BTreeMap;
use std::sync::Arc;

use warpmeter_core::identity::{DeviceId, GpuId, Owner};
use warpmeter_core::inventory::Counter;
use warpmeter_core::ratio::Ppb;
use warpmeter_core::view::{AccountView, Activity, DeviceView, GpuView, View};

/// What has to be remembered from one view to the next.
#[derive(Debug, Default)]
pub(super) struct History {
    gpus: BTreeMap<GpuId, Past>,
}

/// Each device's accounts.
type Accounts<'a> = BTreeMap<&'a DeviceId, Vec<&'a AccountView>>;

/// What is remembered of a GPU.
#[derive(Debug)]
struct Past {
    /// The view before its last window was added.
    before: Arc<View>,
    /// The last view.
    last: Arc<View>,
    /// Microjoules that went to no pod that is named here.
    nobodys_energy: u64,
    /// The number of its last fault; 0 before the first.
    xid: u64,
}

/// A GPU and what its last window brought.
#[derive(Debug)]
pub(super) struct Gpu<'a> {
    pub(super) view: &'a GpuView,
    /// The node's name.
    pub(super) node: &'a str,
    /// The driver's version; empty while it is not known.
    pub(super) driver: &'a str,
    pub(super) index: String,
    /// `nvidiaN`, by the minor number of its device file.
    pub(super) file: String,
    /// The window's length in nanoseconds; 0 before the first.
    pub(super) window: u64,
    pub(super) energy: Option<u64>,
    pub(super) nobodys_energy: u64,
    pub(super) pcie_transmit: Option<u128>,
    pub(super) pcie_receive: Option<u128>,
    pub(super) xid: u64,
    /// Devices that exist now.
    pub(super) devices: Vec<Device<'a>>,
}

/// A device and what the window brought.
#[derive(Debug)]
pub(super) struct Device<'a> {
    pub(super) view: &'a DeviceView,
    /// Of a MIG instance: the GPU instance, and the compute instance if there are several in it.
    pub(super) instance: String,
    /// Nanoseconds with valid counters: what activity is a share of.
    pub(super) profiled: u64,
    pub(super) activity: Activity,
    /// Pods with a name, ended ones included.
    pub(super) pods: Vec<Pod<'a>>,
}

/// A pod's container on a device, and what the window brought.
#[derive(Debug)]
pub(super) struct Pod<'a> {
    pub(super) view: &'a AccountView,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) container: &'a str,
    /// Its part of the activity; nothing is known of it where work is unattributed that may be its own.
    pub(super) activity: Activity,
    pub(super) energy: Option<u64>,
}

impl Device<'_> {
    /// The pods that have not ended.
    pub(super) fn live(&self) -> impl Iterator<Item = &Pod<'_>> {
        self.pods.iter().filter(|pod| !pod.view.ended)
    }

    /// The pod that holds all of the device, if one does and no other is on it.
    pub(super) fn holder(&self) -> Option<&Pod<'_>> {
        let mut live = self.live();
        let first = live.next()?;
        (live.next().is_none() && first.view.allocated == Some(Ppb::ONE)).then_some(first)
    }
}

impl History {
    /// Takes note of `view`. Gives its GPUs that can be read now.
    pub(super) fn learn<'a>(&mut self, view: &'a Arc<View>) -> Vec<Gpu<'a>> {
        self.gpus.retain(|id, _| view.gpu(id).is_some());
        let mut accounts: Accounts<'_> = BTreeMap::new();
        for account in &view.accounts {
            accounts.entry(&account.device).or_default().push(account);
        }
        view.gpus.iter().filter_map(|gpu| self.learn_gpu(view, gpu, &accounts)).collect()
    }

    fn learn_gpu<'a>(
        &mut self,
        view: &'a Arc<View>,
        gpu: &'a GpuView,
        accounts: &Accounts<'a>,
    ) -> Option<Gpu<'a>> {
        let past = self.gpus.entry(gpu.gpu.id.clone()).or_insert_with(|| Past {
            before: Arc::default(),
            last: Arc::default(),
            nobodys_energy: 0,
            xid: 0,
        });
        let last = past.last.gpu(&gpu.gpu.id);
        let new_window = gpu.elapsed != last.map_or(0, |last| last.elapsed);
        let known = |xid: u64| last.and_then(|last| last.xids.iter().find(|(other, _)| *other == xid));
        if let Some((xid, _)) =
            gpu.xids.iter().rfind(|(xid, count)| known(*xid).is_none_or(|(_, old)| old < count))
        {
            past.xid = *xid;
        }
        let last = std::mem::replace(&mut past.last, Arc::clone(view));
        if new_window {
            past.before = last;
        }
        let before = past.before.gpu(&gpu.gpu.id);
        let energy = gained(gpu.totals.energy_uj, before.and_then(|before| before.totals.energy_uj));
        let devices: Vec<Device<'a>> = gpu
            .devices
            .iter()
            .filter(|device| device.present)
            .map(|device| device_window(gpu, device, accounts, &past.before))
            .collect();
        if new_window {
            let pods = devices.iter().flat_map(|device| &device.pods).filter_map(|pod| pod.energy);
            past.nobodys_energy += energy.unwrap_or(0).saturating_sub(pods.sum());
        }
        let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let late = late(gpu);
        let pcie = |now: Option<u128>, then: Option<u128>| {
            Some(now.filter(|_| !late)?.saturating_sub(then.unwrap_or(0)))
        };
        gpu.up.then(|| Gpu {
            view: gpu,
            node: &view.node,
            driver: view.driver.as_ref().map_or("", |driver| &driver.version),
            index: number(gpu.gpu.index),
            file: gpu.gpu.minor.map(|minor| format!("nvidia{minor}")).unwrap_or_default(),
            window: gpu.elapsed - before.map_or(0, |before| before.elapsed).min(gpu.elapsed),
            energy,
            nobodys_energy: past.nobodys_energy,
            pcie_transmit: pcie(gpu.totals.pcie_transmit, before.and_then(|gpu| gpu.totals.pcie_transmit)),
            pcie_receive: pcie(gpu.totals.pcie_receive, before.and_then(|gpu| gpu.totals.pcie_receive)),
            xid: past.xid,
            devices,
        })
    }
}

fn device_window<'a>(
    gpu: &GpuView,
    device: &'a DeviceView,
    accounts: &Accounts<'a>,
    before: &View,
) -> Device<'a> {
    let then =
        before.gpu(&device.id.gpu).and_then(|gpu| gpu.devices.iter().find(|other| other.id == device.id));
    let profiled = gain(device.profiled, then.map_or(0, |then| then.profiled));
    let unattributed = gain(device.usage.unattributed, then.map_or(0, |then| then.usage.unattributed));
    let pods = accounts.get(&device.id).into_iter().flatten();
    let mut pods: Vec<Pod<'a>> =
        pods.filter_map(|account| pod_window(account, before, unattributed > profiled / 1000)).collect();
    let mut activity = believed(activity(&device.activity, then.map(|then| &then.activity)), profiled);
    if late(gpu) {
        for activity in pods.iter_mut().map(|pod| &mut pod.activity).chain([&mut activity]) {
            *activity = Activity { engine: activity.engine, ..Activity::default() };
        }
    }
    Device { view: device, instance: instance(gpu, device), profiled, activity, pods }
}

/// Whether SM figures and traffic come in steps of many windows, from the exporter that has these names by right.
fn late(gpu: &GpuView) -> bool {
    gpu.gpu.authority.sm == Some(Counter::Dcgm)
}

/// `strangers`: whether there was work on the device that nobody knows whose it was.
fn pod_window<'a>(account: &'a AccountView, before: &View, strangers: bool) -> Option<Pod<'a>> {
    let Owner::Pod { uid, container } = &account.owner else { return None };
    let (namespace, name) = account.pod.as_ref()?;
    let then = find(before, &account.owner, &account.device);
    let used = gain(account.used, then.map_or(0, |then| then.used));
    let own = activity(&account.activity, then.map(|then| &then.activity));
    Some(Pod {
        view: account,
        namespace,
        name,
        uid: uid.as_str(),
        container,
        // Such a pod is not known to be idle, and whoever looks for idle pods must not be told so.
        activity: if strangers && used == 0 { Activity::default() } else { own },
        energy: gained(account.energy_uj, then.and_then(|then| then.energy_uj)),
    })
}

/// Accounts are in order of owner and device.
fn find<'v>(view: &'v View, owner: &Owner, device: &DeviceId) -> Option<&'v AccountView> {
    let place = view.accounts.binary_search_by(|other| (&other.owner, &other.device).cmp(&(owner, device)));
    view.accounts.get(place.ok()?)
}

/// SM counters that read nothing while the engine was active for a hundredth or more have failed: totals do not tell
/// a counter that was 0 from one that gave nothing.
fn believed(activity: Activity, profiled: u64) -> Activity {
    let worked = activity.engine.is_some_and(|engine| engine > profiled / 100);
    if worked && activity.sm_active == Some(0) {
        return Activity { engine: activity.engine, ..Activity::default() };
    }
    activity
}

fn activity(now: &Activity, then: Option<&Activity>) -> Activity {
    let none = Activity::default();
    let then = then.unwrap_or(&none);
    Activity {
        engine: gained(now.engine, then.engine),
        sm_active: gained(now.sm_active, then.sm_active),
        sm_occupied: gained(now.sm_occupied, then.sm_occupied),
        tensor: gained(now.tensor, then.tensor),
        dram: gained(now.dram, then.dram),
    }
}

/// What a total has gained; one that was not there began at 0.
fn gained(now: Option<u64>, then: Option<u64>) -> Option<u64> {
    now.map(|now| gain(now, then.unwrap_or(0)))
}

/// The same for a total that is always there. One that is smaller than before belongs to an account that was
/// dropped and made anew: it began at 0 too.
fn gain(now: u64, then: u64) -> u64 {
    now.checked_sub(then).unwrap_or(now)
}

fn instance(gpu: &GpuView, device: &DeviceView) -> String {
    let Some(instance) = &device.instance else { return String::new() };
    let present =
        gpu.devices.iter().filter(|other| other.present).filter_map(|other| other.instance.as_ref());
    let several = present.filter(|other| other.gpu_instance == instance.gpu_instance).count() > 1;
    match instance.compute_instance {
        Some(compute) if several => format!("{}/{compute}", instance.gpu_instance),
        _ => instance.gpu_instance.to_string(),
    }
}
