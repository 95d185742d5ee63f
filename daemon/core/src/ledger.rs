//! Totals that never fall.
//!
//! Two ledgers per device: *use* (used + unattributed + inactive + unknown = elapsed) and *allocation*, which
//! carries the money (states of all holders + unallocated = elapsed).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::explain::Why;
use crate::habit::Habit;
use crate::identity::{DeviceId, Owner};
use crate::lengths::GapLengths;
use crate::price::{Money, Price};
use crate::probe::{Asked, Calls};
use crate::roofline::Bound;
use crate::state::{Class, DeviceState, State};
use crate::time::MonoNs;
use crate::view::{Activity, Evidence, Usage};

/// At most so many ended owners are kept: a node where pods come and go quickly must not grow without bound.
const MOST_ENDED: usize = 1000;

/// What became of one device's time over one stretch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// The device.
    pub device: DeviceId,
    /// The stretch's length in nanoseconds of physical GPU time.
    pub elapsed: u64,
    /// Price of a whole GPU then.
    pub price: Option<Price>,
    /// Whether counters were valid.
    pub profiled: bool,
    /// Each holder's time by state. With `unallocated` and `unheard` these sum to `elapsed`.
    pub allocated: Vec<(Owner, Vec<(State, u64)>)>,
    /// What nobody held.
    pub unallocated: u64,
    /// What nobody knows who held.
    pub unheard: u64,
    /// How the allocation is known.
    pub allocation_evidence: Evidence,
    /// What each owner used. With the rest of `usage` these sum to `elapsed`; `usage.used` is their sum.
    pub used: Vec<(Owner, u64)>,
    /// The use ledger's amounts.
    pub usage: Usage,
    /// How the use is known.
    pub use_evidence: Evidence,
    /// The device's activity.
    pub activity: Activity,
    /// Each owner's part of it.
    pub owner_activity: Vec<(Owner, Activity)>,
    /// Each owner's SM activity with idle tensor pipes and DRAM.
    pub low_intensity: Vec<(Owner, u64)>,
    /// What bounded the work of those who used the device.
    pub bound: Bound,
    /// How many holders' gaps leave less time than the device ran for them.
    pub contradicted: u64,
    /// Why each pod's time is what it is.
    pub whys: Vec<Why>,
    /// What the time of each owner whose calls were seen was lost to.
    pub habits: Vec<(Owner, Habit)>,
}

/// One owner's totals on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Allocated nanoseconds per state.
    pub states: [u64; State::COUNT],
    /// The same in money per class, once a price was known.
    pub costs: Option<[Money; Class::COUNT]>,
    /// Used nanoseconds.
    pub used: u64,
    /// Those beyond the allocation.
    pub borrowed: u64,
    /// Allocated nanoseconds with valid counters.
    pub profiled: u64,
    /// Activity × time.
    pub activity: Activity,
    /// SM activity with idle tensor pipes and DRAM.
    pub low_intensity: Option<u64>,
    /// Used nanoseconds by what bounded the work, in the order of [`Bound::ALL`]; they sum to `used`.
    pub bounds: [u64; Bound::COUNT],
    /// Microjoules.
    pub energy_uj: Option<u64>,
    /// Those of them that the board would have taken without any work, by what the owner holds.
    pub idle_energy_uj: Option<u64>,
    /// What they cost, once a price was known.
    pub energy_cost: Option<Money>,
    /// What it asked of the device, once the probes have seen it ask for something.
    pub calls: Option<Asked>,
    /// Its gaps on the device that have ended, from then on.
    pub gaps: Option<Arc<GapLengths>>,
    /// Evidence of allocated nanoseconds.
    pub allocation_evidence: [u64; Evidence::COUNT],
    /// Evidence of used nanoseconds.
    pub use_evidence: [u64; Evidence::COUNT],
}

/// One device's totals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceAccount {
    /// Time posted.
    pub elapsed: u64,
    /// Nanoseconds per state.
    pub states: [u64; DeviceState::COUNT],
    /// The same in money, once a price was known.
    pub costs: Option<[Money; DeviceState::COUNT]>,
    /// The use ledger.
    pub usage: Usage,
    /// Nanoseconds with valid counters.
    pub profiled: u64,
    /// Activity × time.
    pub activity: Activity,
    /// Evidence of the allocation ledger.
    pub allocation_evidence: [u64; Evidence::COUNT],
    /// Evidence of the use ledger.
    pub use_evidence: [u64; Evidence::COUNT],
    /// Since when the device is gone.
    pub gone: Option<MonoNs>,
}

/// A namespace's totals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceAccount {
    /// Allocated nanoseconds per class.
    pub states: [u64; Class::COUNT],
    /// The same in money, once a price was known.
    pub costs: Option<[Money; Class::COUNT]>,
    /// What its pods' energy cost, once a price was known.
    pub energy_cost: Option<Money>,
}

/// All totals.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    accounts: BTreeMap<Owner, BTreeMap<DeviceId, Account>>,
    ended: BTreeMap<Owner, MonoNs>,
    devices: BTreeMap<DeviceId, DeviceAccount>,
    namespaces: BTreeMap<Arc<str>, NamespaceAccount>,
    unbalanced: u64,
}

impl Ledger {
    /// Adds a posting. `namespace` names that of a pod.
    pub fn post(&mut self, posting: &Posting, namespace: impl Fn(&Owner) -> Option<Arc<str>>) {
        self.unbalanced = self.unbalanced.max(imbalance(posting));
        let device = self.devices.entry(posting.device.clone()).or_default();
        device.elapsed += posting.elapsed;
        device.gone = None;
        device.usage.used += posting.usage.used;
        device.usage.unattributed += posting.usage.unattributed;
        device.usage.inactive += posting.usage.inactive;
        device.usage.unknown += posting.usage.unknown;
        device.use_evidence[posting.use_evidence as usize] += posting.usage.used;
        device.use_evidence[Evidence::Measured as usize] +=
            posting.usage.unattributed + posting.usage.inactive;
        device.allocation_evidence[posting.allocation_evidence as usize] += posting.elapsed;
        if posting.profiled {
            device.profiled += posting.elapsed;
        }
        add_activity(&mut device.activity, &posting.activity);
        let unknown = Class::Unknown as usize;
        device.states[unknown] += posting.unheard;
        charge(&mut device.costs, unknown, posting.price, posting.unheard);
        let unallocated = DeviceState::Unallocated.index();
        device.states[unallocated] += posting.unallocated;
        charge(&mut device.costs, unallocated, posting.price, posting.unallocated);

        for (owner, states) in &posting.allocated {
            let account =
                self.accounts.entry(owner.clone()).or_default().entry(posting.device.clone()).or_default();
            let namespace = namespace(owner).map(|name| self.namespaces.entry(name).or_default());
            let mut total = 0;
            for (state, amount) in states {
                let class = state.class() as usize;
                account.states[state.index()] += amount;
                charge(&mut account.costs, class, posting.price, *amount);
                device.states[class] += amount;
                charge(&mut device.costs, class, posting.price, *amount);
                total += amount;
            }
            account.allocation_evidence[posting.allocation_evidence as usize] += total;
            if posting.profiled {
                account.profiled += total;
            }
            let used = posting.used.iter().find(|(user, _)| user == owner).map_or(0, |(_, amount)| *amount);
            account.borrowed += used.saturating_sub(total);
            if let Some(namespace) = namespace {
                for (state, amount) in states {
                    let class = state.class() as usize;
                    namespace.states[class] += amount;
                    charge(&mut namespace.costs, class, posting.price, *amount);
                }
            }
        }
        for (owner, amount) in &posting.used {
            let account =
                self.accounts.entry(owner.clone()).or_default().entry(posting.device.clone()).or_default();
            account.used += amount;
            account.bounds[posting.bound.index()] += amount;
            account.use_evidence[posting.use_evidence as usize] += amount;
            if !posting.allocated.iter().any(|(holder, _)| holder == owner) {
                account.borrowed += amount;
            }
        }
        for (owner, activity) in &posting.owner_activity {
            let account =
                self.accounts.entry(owner.clone()).or_default().entry(posting.device.clone()).or_default();
            add_activity(&mut account.activity, activity);
        }
        for (owner, amount) in &posting.low_intensity {
            let account =
                self.accounts.entry(owner.clone()).or_default().entry(posting.device.clone()).or_default();
            add(&mut account.low_intensity, Some(*amount));
        }
    }

    /// Adds activity of a time that was posted before, to accounts that still exist.
    pub fn post_late(
        &mut self,
        device: &DeviceId,
        activity: &Activity,
        owners: &[(Owner, Activity)],
        low_intensity: &[(Owner, u64)],
    ) {
        if let Some(account) = self.devices.get_mut(device) {
            add_activity(&mut account.activity, activity);
        }
        let mut account = |owner: &Owner, change: &dyn Fn(&mut Account)| {
            if let Some(account) = self.accounts.get_mut(owner).and_then(|devices| devices.get_mut(device)) {
                change(account);
            }
        };
        for (owner, activity) in owners {
            account(owner, &|account| add_activity(&mut account.activity, activity));
        }
        for (owner, amount) in low_intensity {
            account(owner, &|account| add(&mut account.low_intensity, Some(*amount)));
        }
    }

    /// Adds energy to an owner's account with a device, and what it cost at `price` per kilowatt-hour also to its
    /// namespace.
    pub fn post_energy(
        &mut self,
        owner: &Owner,
        device: &DeviceId,
        microjoules: u64,
        price: Option<Price>,
        namespace: Option<Arc<str>>,
    ) {
        let account = self.accounts.entry(owner.clone()).or_default().entry(device.clone()).or_default();
        add(&mut account.energy_uj, Some(microjoules));
        let Some(price) = price else { return };
        let cost = Money::of_energy(price, microjoules);
        account.energy_cost.get_or_insert_default().add(cost);
        if let Some(name) = namespace {
            self.namespaces.entry(name).or_default().energy_cost.get_or_insert_default().add(cost);
        }
    }

    /// Marks as much of an owner's energy as what the device takes without work.
    pub fn post_idle_energy(&mut self, owner: &Owner, device: &DeviceId, microjoules: u64) {
        let account = self.accounts.entry(owner.clone()).or_default().entry(device.clone()).or_default();
        add(&mut account.idle_energy_uj, Some(microjoules));
    }

    /// Adds what a process of an owner asked of a device.
    pub fn post_calls(&mut self, owner: &Owner, device: &DeviceId, calls: &Calls) {
        let account = self.accounts.entry(owner.clone()).or_default().entry(device.clone()).or_default();
        account.calls.get_or_insert_default().add(&calls.asked);
        let lengths = account.gaps.get_or_insert_default();
        for gap in calls.gaps.iter().filter(|gap| gap.ended > 0 || gap.lasted > 0) {
            Arc::make_mut(lengths).add(gap);
        }
    }

    /// Every owner that has accounts.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.accounts.keys()
    }

    /// Every owner's accounts, in order.
    pub fn accounts(&self) -> impl Iterator<Item = (&Owner, &BTreeMap<DeviceId, Account>)> {
        self.accounts.iter()
    }

    /// Since when an owner has ended, if it has.
    pub fn ended(&self, owner: &Owner) -> Option<MonoNs> {
        self.ended.get(owner).copied()
    }

    /// Every device's totals, in order.
    pub fn devices(&self) -> &BTreeMap<DeviceId, DeviceAccount> {
        &self.devices
    }

    /// Every namespace's totals, in order of name.
    pub fn namespaces(&self) -> &BTreeMap<Arc<str>, NamespaceAccount> {
        &self.namespaces
    }

    /// Marks owners as ended or living again, and devices as gone, and drops those that ended `retain`
    /// nanoseconds ago: by time, never by who has read them.
    pub fn retire(
        &mut self,
        now: MonoNs,
        retain: u64,
        alive: impl Fn(&Owner) -> bool,
        exists: impl Fn(&DeviceId) -> bool,
    ) {
        for owner in self.accounts.keys() {
            if alive(owner) {
                self.ended.remove(owner);
            } else if !self.ended.contains_key(owner) {
                self.ended.insert(owner.clone(), now);
            }
        }
        let mut by_age: Vec<(MonoNs, Owner)> =
            self.ended.iter().map(|(owner, at)| (*at, owner.clone())).collect();
        by_age.sort_unstable();
        let surplus = by_age.len().saturating_sub(MOST_ENDED);
        for (position, (at, owner)) in by_age.into_iter().enumerate() {
            if position < surplus || now.since(at) >= retain {
                self.ended.remove(&owner);
                self.accounts.remove(&owner);
            }
        }
        for (id, device) in &mut self.devices {
            if exists(id) {
                device.gone = None;
            } else {
                device.gone.get_or_insert(now);
            }
        }
        self.devices.retain(|_, device| device.gone.is_none_or(|gone| now.since(gone) < retain));
    }

    /// The largest difference between a ledger's sum and its device's elapsed time that there has been, in
    /// nanoseconds. Anything but 0 is a defect of Warpmeter.
    pub fn conservation_error(&self) -> u64 {
        let device = |account: &DeviceAccount| {
            let states: u64 = account.states.iter().sum();
            states.abs_diff(account.elapsed).max(sum(&account.usage).abs_diff(account.elapsed))
        };
        self.devices.values().map(device).max().unwrap_or(0).max(self.unbalanced)
    }
}

fn sum(usage: &Usage) -> u64 {
    usage.used + usage.unattributed + usage.inactive + usage.unknown
}

fn imbalance(posting: &Posting) -> u64 {
    let allocated: u64 =
        posting.allocated.iter().flat_map(|(_, states)| states).map(|(_, amount)| *amount).sum();
    let used: u64 = posting.used.iter().map(|(_, amount)| *amount).sum();
    let allocation = (allocated + posting.unallocated + posting.unheard).abs_diff(posting.elapsed);
    allocation.max(sum(&posting.usage).abs_diff(posting.elapsed)).max(used.abs_diff(posting.usage.used))
}

/// Adds what `nanos` cost to one place of `costs`; without a price nothing is known and nothing is added.
pub fn charge<const N: usize>(
    costs: &mut Option<[Money; N]>,
    place: usize,
    price: Option<Price>,
    nanos: u64,
) {
    if let Some(price) = price {
        costs.get_or_insert([Money::default(); N])[place].add(Money::of(price, nanos));
    }
}

/// Adds an amount that may be unknown: what was known stays known.
pub fn add(total: &mut Option<u64>, amount: Option<u64>) {
    if let Some(amount) = amount {
        *total.get_or_insert(0) += amount;
    }
}

fn add_activity(total: &mut Activity, amount: &Activity) {
    add(&mut total.engine, amount.engine);
    add(&mut total.sm_active, amount.sm_active);
    add(&mut total.sm_occupied, amount.sm_occupied);
    add(&mut total.tensor, amount.tensor);
    add(&mut total.dram, amount.dram);
}
