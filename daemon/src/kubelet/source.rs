//! The source: asks when it is time, keeps what is good, and says what has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use warpmeter_core::fact::{DeviceRef, Discard, Fact, Grant, Health, Pods};

use super::answer::{self, Offer, Reading};
use super::bounds;
use super::client::{self, AskError};
use super::health::{self, Condition, Now};
use super::logs::Logs;
use super::mapping::{Holding, Mapping, PodName};
use super::naming::Naming;
use super::odd::Odd;
use super::options::KubeletOptions;
use super::schedule::{SPACING, Schedule, Stamp};

/// How long a kubelet may take to know its pods again after it has made its socket.
const SETTLING: Duration = Duration::from_secs(30);
/// How often what has not changed is sent all the same: it may have been lost on its way.
const AGAIN: Duration = Duration::from_mins(1);

/// Asks the kubelet who holds which GPU. It has a thread of its own, since a question may take as long as its deadline.
#[derive(Debug)]
pub struct KubeletSource {
    options: KubeletOptions,
    schedule: Schedule,
    logs: Logs,
    naming: Naming,
    condition: Condition,
    /// What is known at present; none before the first answer.
    mapping: Option<Mapping>,
    /// The GPU of all units of memory, if they are of one.
    unit_gpu: Option<DeviceRef>,
    /// When the kubelet restarted, if it has since the first answer.
    restarted: Option<Instant>,
    /// When each pod was last listed by the kubelet itself.
    listed: BTreeMap<PodName, Instant>,
    /// When the names of logs were read last.
    named: Option<Instant>,
    /// What the last answer had that was not understood.
    discarded: BTreeSet<(Discard, u64)>,
    odd: Odd,
    /// What was sent last, and when.
    pub(super) sent: Option<(Pods, Instant)>,
}

impl KubeletSource {
    /// A source that has asked nothing yet.
    pub fn new(options: KubeletOptions) -> Self {
        Self {
            schedule: Schedule::new(options.refresh),
            logs: Logs::new(&options),
            options,
            naming: Naming::default(),
            condition: Condition::default(),
            mapping: None,
            unit_gpu: None,
            restarted: None,
            listed: BTreeMap::new(),
            named: None,
            discarded: BTreeSet::new(),
            odd: Odd::default(),
            sent: None,
        }
    }

    /// Does what is due and appends what has changed. To be called several times a second.
    ///
    /// Asks the kubelet every `refresh`; within a second of a pod's appearance, of a new socket or of
    /// [`Self::hasten`]; more seldom while it fails; never more than once a second. Takes little longer than `deadline`,
    /// whatever the kubelet does. Each question appends a [`Fact::Poll`] that says whether it was answered; an answer
    /// that differs, or one a minute, a [`Fact::Pods`]. Without an answer, what was last sent stays right as far as
    /// anybody knows.
    pub fn poll(&mut self, out: &mut Vec<Fact>) {
        let now = Now::read();
        match Stamp::of(&self.options.socket) {
            Ok(stamp) => {
                if self.schedule.sees(Some(stamp)) && self.mapping.is_some() {
                    self.restarted = Some(now.mono);
                }
                if self.logs.pods_changed() && self.named.is_some() {
                    self.schedule.hasten();
                }
                if self.schedule.is_due(now.mono) {
                    self.ask(out);
                    return;
                }
            }
            Err(error) => {
                self.schedule.sees(None);
                self.condition.fails(now, health::no_socket(&self.options.socket, &error));
            }
        }
        let rested = self.named.is_none_or(|named| now.mono.saturating_duration_since(named) >= SPACING);
        if rested && self.logs.changed() {
            self.send(now.mono, out);
        }
    }

    /// How well it goes.
    pub fn health(&self) -> Health {
        self.condition.health(Instant::now(), self.options.refresh)
    }

    /// Asks as soon as it may: a pod has appeared that is not known.
    pub fn hasten(&mut self) {
        self.schedule.hasten();
    }

    fn ask(&mut self, out: &mut Vec<Fact>) {
        let began = Instant::now();
        let answer = client::ask(&self.options.socket, self.options.deadline);
        let reading =
            answer.and_then(|answer| Ok(answer::read(answer, &self.options, self.unit_gpu.as_ref())?));
        let now = Now::read();
        let answered = reading.is_ok();
        self.schedule.asked(now.mono, answered);
        match reading {
            Ok(reading) => self.take(reading, now, out),
            Err(error) => self.condition.fails(now, health::no_answer(&self.options.socket, &error)),
        }
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        out.push(Fact::Poll { took, answered });
    }

    fn take(&mut self, mut reading: Reading, now: Now, out: &mut Vec<Fact>) {
        self.condition.answered(now);
        self.unit_gpu = reading.unit_gpu.take();
        for reason in [Discard::DeviceId, Discard::Garbage] {
            let new = reading.discarded.difference(&self.discarded).filter(|(new, _)| *new == reason).count();
            if let Some(count) = u64::try_from(new).ok().filter(|count| *count > 0) {
                out.push(Fact::Discarded { reason, count });
            }
        }
        self.odd.seen(now.mono, !reading.discarded.is_empty(), reading.example.as_deref());
        self.discarded = std::mem::take(&mut reading.discarded);
        let mut mapping = std::mem::take(&mut reading.mapping);
        let recent = |since: &Instant| now.mono.saturating_duration_since(*since) < SETTLING;
        self.listed.extend(mapping.pods.keys().map(|name| (name.clone(), now.mono)));
        // However often a kubelet restarts, a pod that it does not list outlasts its last listing by no more than this.
        self.listed.retain(|_, since| recent(since));
        if let Some(older) = &self.mapping {
            let settling = self.restarted.as_ref().is_some_and(recent);
            if settling {
                mapping.add_missing(older, |name| self.listed.contains_key(name));
            }
            mapping.add_replicas(older, !settling && matches!(reading.offer, Offer::Known));
        }
        let lacking = lacking(&reading, &mapping);
        self.mapping = Some(mapping);
        self.send(now.mono, out);
        self.condition.missing = lacking;
        self.condition.missing.extend(self.lacking_names(now.mono));
    }

    /// Names the pods and sends them if that makes a difference.
    fn send(&mut self, now: Instant, out: &mut Vec<Fact>) {
        self.logs.read();
        self.named = Some(now);
        let Some(mapping) = &self.mapping else { return };
        let pods = self.naming.name(mapping, &self.logs, now);
        let known =
            |(sent, at): &(Pods, Instant)| *sent == pods && now.saturating_duration_since(*at) < AGAIN;
        if !self.sent.as_ref().is_some_and(known) {
            out.push(Fact::Pods(pods.clone()));
            self.sent = Some((pods, now));
        }
    }

    fn lacking_names(&self, now: Instant) -> Vec<String> {
        let mut lacking = Vec::new();
        if self.naming.has_nameless() {
            if let Some(unread) = self.logs.unread_pods() {
                lacking.push(format!(
                    "pods that hold GPUs have no UID, so that no process is theirs: {unread} (mount {} read-only)",
                    self.options.pod_logs.display()
                ));
            } else if self.naming.has_long_nameless(now) {
                lacking.push(format!(
                    "pods hold GPUs that have no directory in {} (see whether it is the kubelet's podLogsDir, and \
                     whether those pods can start)",
                    self.options.pod_logs.display()
                ));
            }
        }
        let sharing =
            || self.mapping.iter().flat_map(|mapping| mapping.pods.values()).any(has_several_containers);
        if let Some(unread) = self.logs.unread_containers().filter(|_| sharing()) {
            lacking.push(format!(
                "which of a pod's containers uses a GPU is not known: {unread} (mount {} read-only)",
                self.options.container_logs.display()
            ));
        }
        lacking
    }
}

/// Whether several containers of a pod hold devices.
fn has_several_containers(holding: &Holding) -> bool {
    let mut holders = holding.grants.iter().map(|grant: &Grant| &grant.container);
    let first = holders.next();
    holders.any(|holder| Some(holder) != first)
}

/// What an answer lacks, of which `mapping` was made.
fn lacking(reading: &Reading, mapping: &Mapping) -> Vec<String> {
    let mut lacking = Vec::new();
    let guessed = "how many replicas a shared GPU has is taken from the highest number that is held";
    match &reading.offer {
        Offer::Known => {}
        Offer::Unserved if !mapping.lacks_replicas() => {}
        Offer::Unserved => lacking.push(format!(
            "{guessed}: this kubelet does not tell what is allocatable (Kubernetes 1.23 or later does)"
        )),
        Offer::Failed(error) if mapping.lacks_replicas() => {
            lacking.push(format!("{guessed}: GetAllocatableResources: {error}"));
        }
        Offer::Failed(error) => lacking.push(stale_offer(error)),
    }
    if reading.loose_units {
        lacking.push(
            "units of GPU memory are granted on a node with several GPUs, and the kubelet does not know whose: such \
             pods hold nothing here, and their use counts as not granted"
                .to_owned(),
        );
    }
    if reading.holders_left_out > 0 {
        lacking.push(format!(
            "{} pods that hold GPUs are left out, and their use counts as not granted: of all pods the first {} in \
             order of name are taken, with no more than {} containers, {} devices and {} parts of devices together \
             (see what makes so many)",
            reading.holders_left_out,
            bounds::PODS,
            bounds::CONTAINERS,
            bounds::PLACES,
            bounds::GRANTS
        ));
    }
    if reading.others_left_out > 0 {
        lacking.push(format!(
            "{} pods without GPUs are left out, and have no name if they use one all the same: only the first {} in \
             order of name are taken, with {} containers",
            reading.others_left_out,
            bounds::PODS,
            bounds::CONTAINERS
        ));
    }
    if reading.more_discarded {
        lacking.push(format!(
            "more than {} ids and names cannot be understood, of which only so many are counted",
            bounds::ODD
        ));
    }
    lacking
}

fn stale_offer(error: &AskError) -> String {
    format!(
        "changes of what is allocatable are missed: GetAllocatableResources: {error} (see the kubelet's log)"
    )
}
