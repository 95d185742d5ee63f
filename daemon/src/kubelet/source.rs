//! The source: asks when it is time, keeps what is good, and says what has changed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use warpmeter_core::fact::{DeviceRef, Discard, Fact, Grant, Health, Pods};

use super::answer::{self, Offer, Reading};
use super::client;
use super::gaps;
use super::health::{self, Condition, Now};
use super::logs::Logs;
use super::mapping::{Holding, Mapping};
use super::naming::Naming;
use super::odd::Odd;
use super::options::KubeletOptions;
use super::schedule::{SPACING, Schedule, Stamp};
use super::settling::Settling;

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
    settling: Settling,
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
            settling: Settling::default(),
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
                    self.settling.restarted();
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
            self.send(false, now.mono, out);
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
        self.odd.seen(
            now.mono,
            !reading.discarded.is_empty(),
            reading.example.as_ref().map(ToString::to_string).as_deref(),
        );
        let mut mapping = std::mem::take(&mut reading.mapping);
        let settling = self.settling.answered(now.mono);
        if let Some(older) = &self.mapping {
            if let Some((older, _)) = self.sent.as_ref().filter(|_| settling) {
                // Afresh: a pod that has ended since the last reading is not held over.
                self.logs.read();
                self.settling.complete(&mut mapping, older, &self.logs, now.mono);
            }
            mapping.add_replicas(older, !settling && matches!(reading.offer, Offer::Known));
        }
        let lacking = gaps::of_answer(&reading, &mapping);
        self.discarded = reading.discarded;
        self.mapping = Some(mapping);
        self.send(true, now.mono, out);
        self.condition.missing = lacking;
        self.condition.missing.extend(self.settling.gap());
        self.condition.missing.extend(self.naming.gap());
        self.condition.missing.extend(self.lacking_names(now.mono));
    }

    /// Names the pods of an answer, `fresh` or not, and sends them if that makes a difference.
    fn send(&mut self, fresh: bool, now: Instant, out: &mut Vec<Fact>) {
        self.logs.read();
        self.named = Some(now);
        let Some(mapping) = &self.mapping else { return };
        let pods = self.naming.name(mapping, &self.logs, fresh, now);
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
        let sharing = || {
            self.mapping
                .iter()
                .flat_map(|mapping| mapping.pods.values().flatten())
                .any(has_several_containers)
        };
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
