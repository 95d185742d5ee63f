//! From what is known of one device over one stretch to a posting.

use std::collections::BTreeMap;

use crate::allocate::Held;
use crate::attribute::{Participants, Used, Weights, attribute};
use crate::explain::{Caller, Ground, Why};
use crate::fact::{Level, Part};
use crate::habit::Habit;
use crate::identity::{DeviceId, Owner};
use crate::ledger::Posting;
use crate::level::average;
use crate::price::Price;
use crate::roofline::{Bound, Loads, Roofline};
use crate::split::Split;
use crate::stall::{self, Host, Still};
use crate::state::{Progress, Situation, divide};
use crate::time::{Interval, MonoNs};
use crate::view::{Activity, Evidence, Usage};

/// A device's use, and for how long each owner had work outstanding.
type Divided = (Used, BTreeMap<Owner, u64>);

/// One device over one stretch of time in which nothing was granted or revoked.
#[derive(Debug)]
pub struct Stretch<'a> {
    /// The device.
    pub device: DeviceId,
    /// The stretch.
    pub during: Interval,
    /// The device's part of it in nanoseconds of physical GPU time.
    pub budget: u64,
    /// Price of the whole GPU.
    pub price: Option<Price>,
    /// The device's counters, and when their interval began; none if they were lost.
    pub part: Option<(&'a Part, MonoNs)>,
    /// Whether its engine counter is contradicted.
    pub conflict: bool,
    /// Who holds it.
    pub held: &'a Held,
    /// Whether that is not known yet, because the source of grants has not spoken: then nobody is in `held`.
    pub unheard: bool,
    /// Who had a context.
    pub who: &'a Participants,
    /// What its use can be divided by.
    pub by: Weights,
    /// Whether use that nothing divides is split equally.
    pub equal_split: bool,
    /// From how long a quiet on an owner has no work.
    pub no_work_after: u64,
}

/// What is known of an owner on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// How far it has come; none if that is not known.
    pub progress: Option<Progress>,
    /// For how long it has been quiet there, in nanoseconds.
    pub quiet: u64,
    /// What the probes saw of it in the stretch.
    pub host: Option<Host>,
    /// How many kernels and graphs it launched then.
    pub launches: u64,
    /// Its processes that called the driver then.
    pub callers: Vec<Caller>,
}

impl Stretch<'_> {
    /// Divides the stretch. Both ledgers' amounts add up to the budget.
    pub fn post(&self, standing: impl Fn(&Owner) -> Standing) -> Posting {
        let amount = |level: &Option<Level>| {
            let (_, start) = self.part?;
            average(level.as_ref()?, start, self.during).map(|ratio| ratio.of(self.budget))
        };
        let part = self.part.map(|(part, _)| part);
        let valid = |level: Option<&Option<Level>>| if self.conflict { None } else { level.and_then(amount) };
        let activity = Activity {
            engine: valid(part.map(|part| &part.engine)),
            sm_active: valid(part.map(|part| &part.sm_active)),
            sm_occupied: valid(part.map(|part| &part.sm_occupied)),
            tensor: valid(part.map(|part| &part.tensor)),
            dram: valid(part.map(|part| &part.dram)),
        };
        let divided = activity.engine.map(|engine| {
            let used = attribute(engine, self.budget, self.who, self.held, &self.by, self.equal_split);
            (used, self.by.outstanding(engine, self.budget))
        });
        let roofline = divided.as_ref().map(|(used, _)| {
            let busiest = part.map(|part| &part.pipes).filter(|_| !self.conflict).and_then(|pipes| {
                let amounts = pipes.all().map(amount);
                // The busiest may be one that is not counted.
                amounts.into_iter().collect::<Option<Vec<u64>>>()?.into_iter().max()
            });
            Roofline::of(loads(self.budget, &activity, busiest), alone(used))
        });

        let mut allocated = Vec::new();
        let (mut whys, mut habits) = (Vec::new(), Vec::new());
        let (mut unallocated, mut contradicted) = (0, 0);
        for (owner, share) in self.held.divide(self.budget).into_parts() {
            match owner {
                Some(owner) => {
                    let standing = standing(&owner);
                    let situation = self.situation(&owner, share, divided.as_ref(), &standing);
                    contradicted +=
                        u64::from(situation.causes.as_ref().is_some_and(|found| found.contradicted));
                    let (states, ground) = divide(&situation);
                    let seen = standing.host.as_ref().filter(|host| !host.shed && !host.gaps.is_empty());
                    if let (Some(host), Some(causes), Ground::Causes) = (seen, &situation.causes, ground) {
                        let habit = Habit::of(causes, host, self.during.nanos(), self.during.end());
                        habits.push((owner.clone(), habit));
                    }
                    if matches!(owner, Owner::Pod { .. }) {
                        whys.push(Why {
                            owner: owner.clone(),
                            device: self.device.clone(),
                            during: self.during,
                            states: states.clone(),
                            used: situation.used,
                            use_evidence: divided
                                .as_ref()
                                .map_or(Evidence::Measured, |(used, _)| used.evidence),
                            allocation_evidence: self.held.evidence,
                            ground,
                            still: divided.as_ref().map(|divided| self.still(&owner, divided)),
                            rules: situation.causes.filter(|_| ground == Ground::Causes),
                            roofline: roofline.filter(|_| situation.used.is_some_and(|used| used > 0)),
                            callers: standing.callers,
                            followed: standing.host.as_ref().is_some_and(|host| host.followed),
                        });
                    }
                    allocated.push((owner, states));
                }
                None => unallocated += share,
            }
        }

        let (shares, usage, use_evidence) = match divided {
            None => {
                let usage = Usage { unknown: self.budget, ..Usage::default() };
                (Vec::new(), usage, Evidence::Measured)
            }
            Some((used, _)) => {
                let total = used.shares.iter().map(|(_, amount)| *amount).sum();
                let inactive = self.budget - total - used.unattributed;
                let usage = Usage { used: total, unattributed: used.unattributed, inactive, unknown: 0 };
                (used.shares, usage, used.evidence)
            }
        };
        let owner_activity = share_activity(&activity, &self.everyone(&shares), usage.unattributed);
        let low_intensity = low_intensities(&activity, self.budget, &owner_activity);
        Posting {
            device: self.device.clone(),
            elapsed: self.budget,
            price: self.price,
            profiled: activity.engine.is_some(),
            allocated,
            unallocated: if self.unheard { 0 } else { unallocated },
            unheard: if self.unheard { unallocated } else { 0 },
            allocation_evidence: if self.unheard { Evidence::Assumed } else { self.held.evidence },
            used: shares,
            usage,
            use_evidence,
            activity,
            owner_activity,
            low_intensity,
            bound: roofline.map_or(Bound::Unknown, |roofline| roofline.bound()),
            contradicted,
            whys,
            habits,
        }
    }

    /// What each owner concerned used: nothing is an amount too.
    fn everyone(&self, shares: &[(Owner, u64)]) -> Vec<(Owner, u64)> {
        let concerned = self.held.holders.iter().map(|(owner, _)| owner).chain(&self.who.owners);
        let mut everyone: BTreeMap<Owner, u64> = concerned.map(|owner| (owner.clone(), 0)).collect();
        everyone.extend(shares.iter().cloned());
        everyone.into_iter().collect()
    }

    fn situation(
        &self,
        owner: &Owner,
        allocated: u64,
        divided: Option<&Divided>,
        standing: &Standing,
    ) -> Situation {
        // Unattributed work may be anybody's who has a context here, or of whom nobody knows: none of them is idle
        // for certain. Who has not opened the device has no part in the work of processes that are all known.
        let known = !self.who.strangers && !self.who.unseen && !self.who.owners.is_empty();
        let absent = known && standing.progress == Some(Progress::NoProcess);
        let used = divided.map(|(used, _)| used);
        let hidden = !absent && used.is_some_and(|used| used.unattributed > self.budget / 1000);
        let still = divided.map(|divided| self.still(owner, divided));
        let host = standing.host.as_ref();
        let conflict = self.conflict
            || still.zip(host).is_some_and(|(still, host)| disproved(still, host, standing.launches));
        let causes = still.zip(host).map(|(still, host)| {
            let mut causes = stall::causes(still, host);
            causes.queue(self.queued(owner, divided, still, host));
            causes
        });
        Situation {
            allocated,
            whole: self.budget,
            used: used.map(|used| used.of(owner)),
            conflict,
            progress: if hidden { None } else { standing.progress },
            quiet: standing.quiet,
            no_work_after: self.no_work_after,
            causes,
        }
    }

    /// For how long `owner` had work outstanding while others' ran, in the node's time. Of several processes, and of
    /// those who run beside others, nothing says that they waited.
    fn queued(&self, owner: &Owner, divided: Option<&Divided>, still: Still, host: &Host) -> u64 {
        let Some((_, outstanding)) = divided else { return 0 };
        if self.who.served || !host.alone {
            return 0;
        }
        let outstanding = self.real(outstanding.get(owner).copied().unwrap_or(0));
        outstanding.saturating_sub(still.used).min(still.others)
    }

    /// How long the device ran for `owner` and for others, in the node's time.
    fn still(&self, owner: &Owner, (used, outstanding): &Divided) -> Still {
        let own = used.of(owner);
        let all: u64 = used.shares.iter().map(|(_, amount)| *amount).sum::<u64>() + used.unattributed;
        // Under MPS its work ran beside others', for longer than its part of that time: it did not wait for them.
        let beside = if self.who.served { outstanding.get(owner).copied().unwrap_or(0).min(all) } else { 0 };
        Still { whole: self.during.nanos(), used: self.real(beside.max(own)), others: self.real(all - own) }
    }

    /// The device's nanoseconds in the node's: an instance has a part of its GPU's time, and is as long busy or not as
    /// the stretch is.
    fn real(&self, amount: u64) -> u64 {
        let whole = self.during.nanos();
        let product = u128::from(amount) * u128::from(whole);
        u64::try_from(product / u128::from(self.budget.max(1))).unwrap_or(whole).min(whole)
    }
}

/// Whether the engine counter cannot be right: it shows nothing, and kernels were launched and waited for.
fn disproved(still: Still, host: &Host, launches: u64) -> bool {
    let quiet = still.used.saturating_add(still.others) < still.whole / 1000;
    quiet && launches > 0 && host.waited.saturating_sub(host.copies) > still.whole / 10
}

/// Whether all of a device's work is known to be one owner's, so that its counters are that owner's too.
fn alone(used: &Used) -> bool {
    let users = used.shares.iter().filter(|(_, amount)| *amount > 0).count();
    users == 1 && used.unattributed == 0 && used.evidence != Evidence::Assumed
}

fn loads(whole: u64, activity: &Activity, vector: Option<u64>) -> Loads {
    let Activity { engine, sm_active, sm_occupied, tensor, dram } = *activity;
    Loads { whole, engine: engine.unwrap_or(0), sm_active, sm_occupied, dram, tensor, vector }
}

/// Whether SMs were active (from a tenth on) while tensor pipes and DRAM did next to nothing (up to a hundredth
/// and a twentieth): what spinning looks like, such as waiting in a collective. None if a counter is missing.
fn low_intensity(activity: &Activity, whole: u64) -> Option<bool> {
    let (sm, tensor, dram) = (activity.sm_active?, activity.tensor?, activity.dram?);
    Some(sm > 0 && sm >= whole / 10 && tensor <= whole / 100 && dram <= whole / 20)
}

/// Each owner's SM activity of low intensity, if it is known whether the device's was.
pub(crate) fn low_intensities(
    activity: &Activity,
    whole: u64,
    owners: &[(Owner, Activity)],
) -> Vec<(Owner, u64)> {
    let of = |own: fn(&Activity) -> u64| owners.iter().map(|(owner, it)| (owner.clone(), own(it))).collect();
    match low_intensity(activity, whole) {
        Some(false) => of(|_| 0),
        Some(true) => of(|own| own.sm_active.unwrap_or(0)),
        None => Vec::new(),
    }
}

/// Divides the device's activity by what each owner used of it: no device counts these per process.
pub(crate) fn share_activity(
    total: &Activity,
    used: &[(Owner, u64)],
    unattributed: u64,
) -> Vec<(Owner, Activity)> {
    let mut shares: Vec<(Owner, Activity)> =
        used.iter().map(|(owner, _)| (owner.clone(), Activity::default())).collect();
    let mut divide = |amount: Option<u64>, place: fn(&mut Activity) -> &mut Option<u64>| {
        let Some(amount) = amount else { return };
        let weights = used.iter().enumerate().map(|(index, (_, weight))| (Some(index), *weight));
        let split = Split::by_weight(amount, weights.clone().chain([(None, unattributed)]).collect());
        // Without any use by anyone, nobody's part of the rest is known, and each one's own is nothing.
        let parts = split.map_or_else(|| weights.collect(), Split::into_parts);
        for (index, amount) in parts {
            if let Some(index) = index {
                *place(&mut shares[index].1) = Some(amount);
            }
        }
    };
    divide(total.engine, |activity| &mut activity.engine);
    divide(total.sm_active, |activity| &mut activity.sm_active);
    divide(total.sm_occupied, |activity| &mut activity.sm_occupied);
    divide(total.tensor, |activity| &mut activity.tensor);
    divide(total.dram, |activity| &mut activity.dram);
    shares
}
