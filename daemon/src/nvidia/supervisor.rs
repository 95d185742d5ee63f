//! Keeps one `nvidia` process alive, and does without the devices that it cannot survive.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Fact, Health, HealthState, Sample, Source};
use warpmeter_core::inventory::{Gpu, Inventory};

use super::gate::Part;
use super::{Gate, Message, Orders};
use crate::pipeline::Intake;
use crate::process::{Abandoned, describe, lines, sleep, wait_briefly};

/// The name of the driver itself among the things that are touched.
const DRIVER: &str = "driver";

/// After so long without a failure since its last chance, a device starts with a clean record.
const FORGIVEN: Duration = Duration::from_secs(600);

/// How patient the supervisor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A call that takes longer than this hangs.
    pub hang: Duration,
    /// For how long a device that hung is left alone at first; doubled each time, up to an hour.
    pub skip: Duration,
    /// The wait before a restart that no device is to blame for; doubled each time, up to a minute.
    pub restart: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            hang: Duration::from_secs(3),
            skip: Duration::from_secs(60),
            restart: Duration::from_millis(500),
        }
    }
}

/// A device that the process did not survive.
#[derive(Debug, Clone)]
struct Bad {
    /// It is left alone until then; none: it has been given another chance.
    until: Option<Instant>,
    /// For how long it was left alone the last time.
    wait: Duration,
    /// When it failed last.
    failed: Instant,
    reason: String,
}

/// The supervisor.
#[derive(Debug)]
pub struct Supervisor {
    program: PathBuf,
    arguments: Vec<OsString>,
    orders: Orders,
    timing: Timing,
    intake: Intake,
    gate: Arc<Gate>,
    bad: BTreeMap<String, Bad>,
    known: BTreeMap<String, Gpu>,
    abandoned: Abandoned,
}

/// How a process ended.
#[derive(Debug)]
enum End {
    Stopped,
    Released,
    Hung { at: Option<String> },
    Died { at: Option<String>, how: String },
    Retry,
}

impl Supervisor {
    /// Runs `program` with `arguments` and the JSON of the orders as the last one.
    pub fn new(
        program: PathBuf,
        arguments: Vec<OsString>,
        orders: Orders,
        timing: Timing,
        intake: &Intake,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            program,
            arguments,
            orders,
            timing,
            intake: intake.of(Source::Nvidia),
            gate,
            bad: BTreeMap::new(),
            known: BTreeMap::new(),
            abandoned: Abandoned::default(),
        }
    }

    /// Supervises until `stop` is set; looks at it at least ten times a second.
    pub fn run(mut self, stop: &AtomicBool) {
        let mut wait = self.timing.restart;
        while !stop.load(Ordering::Relaxed) {
            if !self.gate.enter(Part::Driver) {
                sleep(Duration::from_millis(100), stop);
                continue;
            }
            let began = Instant::now();
            let end = match self.spawn() {
                Ok(child) => self.watch(child, stop),
                Err(error) => {
                    End::Died { at: None, how: format!("cannot start {}: {error}", self.program.display()) }
                }
            };
            self.abandoned.reap();
            match end {
                End::Stopped => break,
                End::Released => {
                    let reason =
                        "released for maintenance; `warpmeter resume` takes the driver up again".to_owned();
                    self.intake.put(Fact::Health(Health { state: HealthState::Off, reason }));
                    // Whoever maintains the driver mends its devices too, or replaces them.
                    self.bad.clear();
                    self.known.clear();
                    while !self.abandoned.is_empty() && !stop.load(Ordering::Relaxed) {
                        sleep(Duration::from_millis(20), stop);
                        self.abandoned.reap();
                    }
                    self.gate.leave(Part::Driver);
                    wait = self.timing.restart;
                    continue;
                }
                End::Retry => wait = self.timing.restart,
                End::Hung { at: Some(device) } if device != DRIVER => {
                    self.blame(
                        device,
                        format!("a driver call on it did not return within {:?}", self.timing.hang),
                    );
                    wait = self.timing.restart;
                }
                End::Died { at: Some(device), how } if device != DRIVER => {
                    self.blame(device, format!("the process that read it {how}"));
                    wait = self.timing.restart;
                }
                End::Hung { at } => {
                    let what = at.map_or("it", |_| "a call to the driver");
                    self.down(format!(
                        "the nvidia process fell silent: {what} did not return; it is started anew"
                    ));
                }
                End::Died { how, .. } => self.down(format!("the nvidia process {how}; it is started anew")),
            }
            if began.elapsed() > Duration::from_secs(60) {
                wait = self.timing.restart;
            }
            self.abandoned.reap();
            if self.abandoned.is_empty() {
                // Nobody has the driver open while the supervisor waits.
                self.gate.leave(Part::Driver);
            }
            sleep(wait, stop);
            wait = (wait * 2).min(Duration::from_secs(60));
            self.abandoned.reap();
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let skip = self.skipped().map(|(device, _)| device.clone()).collect();
        let orders = Orders { skip, known: self.by_index(), ..self.orders.clone() };
        Command::new(&self.program)
            .args(&self.arguments)
            .arg(serde_json::to_string(&orders)?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
    }

    /// Passes on what the process reports until it hangs, dies or has to make way for a new one.
    fn watch(&mut self, mut child: Child, stop: &AtomicBool) -> End {
        let Some(pipe) = child.stdout.take() else {
            return End::Died { at: None, how: "has no output".into() };
        };
        let end = match lines("nvidia-pipe", pipe) {
            Ok(lines) => self.follow(&lines, stop),
            Err(error) => End::Died { at: None, how: format!("cannot be read: {error}") },
        };
        match end {
            End::Died { at, .. } => {
                let how = match wait_briefly(&mut child) {
                    // It asked for a successor: the library's file was exchanged under it.
                    Some(status) if status.success() => return End::Retry,
                    Some(status) => describe(status),
                    None => "closed its output".into(),
                };
                self.abandoned.kill(child);
                End::Died { at, how }
            }
            other => {
                self.abandoned.kill(child);
                other
            }
        }
    }

    fn follow(&mut self, lines: &Receiver<Vec<u8>>, stop: &AtomicBool) -> End {
        let mut touched: Option<String> = None;
        let mut heard = Instant::now();
        let period = Duration::from_nanos(self.orders.period);
        loop {
            if stop.load(Ordering::Relaxed) {
                return End::Stopped;
            }
            if !self.gate.open() {
                return End::Released;
            }
            if self.give_chances() {
                return End::Retry;
            }
            // Between its rounds the process may be silent for a period.
            let patience = if touched.is_some() { self.timing.hang } else { self.timing.hang + period };
            match lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    heard = Instant::now();
                    match serde_json::from_slice(&line) {
                        Ok(Message::Touch(device)) => touched = Some(device),
                        Ok(Message::Released) => touched = None,
                        Ok(Message::Sample(sample)) => self.pass(sample),
                        Err(error) => {
                            let reason = warpmeter_core::fact::Discard::Garbage;
                            tracing::debug!(%error, "a line of the nvidia process does not parse");
                            self.intake.put(Fact::Discarded { reason, count: 1 });
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                    return End::Hung { at: touched };
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return End::Died { at: touched, how: String::new() },
            }
        }
    }

    /// Passes on a fact, with what the process cannot know: the devices that it was told to leave alone.
    fn pass(&mut self, mut sample: Sample) {
        match &mut sample.fact {
            Fact::Inventory(inventory) => {
                let seen = inventory.gpus.iter().filter(|gpu| gpu.down.is_none());
                for gpu in seen {
                    self.known.insert(gpu.pci_bus_id.clone(), gpu.clone());
                }
                self.add_skipped(inventory);
            }
            Fact::Health(health) if matches!(health.state, HealthState::Up | HealthState::Degraded) => {
                let left = self.left_alone();
                if !left.is_empty() {
                    let both =
                        [left.as_str(), &health.reason].into_iter().filter(|reason| !reason.is_empty());
                    let reason = both.collect::<Vec<_>>().join("; ");
                    *health = Health { state: HealthState::Degraded, reason };
                }
            }
            _ => {}
        }
        self.intake.sample(sample);
    }

    fn add_skipped(&self, inventory: &mut Inventory) {
        for (device, bad) in self.skipped() {
            if inventory.gpus.iter().any(|gpu| gpu.pci_bus_id == *device && gpu.down.is_none()) {
                continue;
            }
            if let Some(gpu) = self.known.get(device) {
                inventory.gpus.retain(|other| other.id != gpu.id);
                inventory.gpus.push(Gpu { down: Some(format!("left alone: {}", bad.reason)), ..gpu.clone() });
            }
        }
        inventory.gpus.sort_by(|a, b| a.id.cmp(&b.id));
    }

    /// PCI bus ids by index, if every index up to the last has one.
    fn by_index(&self) -> Vec<String> {
        let at = |gpu: &Gpu| gpu.index.and_then(|index| usize::try_from(index).ok());
        let mut ids: BTreeMap<usize, &String> = BTreeMap::new();
        for gpu in self.known.values() {
            ids.extend(at(gpu).map(|index| (index, &gpu.pci_bus_id)));
        }
        let complete = ids.keys().copied().eq(0..ids.len()) && ids.len() == self.known.len();
        if complete { ids.into_values().cloned().collect() } else { Vec::new() }
    }

    fn skipped(&self) -> impl Iterator<Item = (&String, &Bad)> {
        self.bad.iter().filter(|(_, bad)| bad.until.is_some())
    }

    /// Gives devices that were left alone for long enough another chance. True if there are any: then a new
    /// process has to be told. A new failure doubles the wait, as [`Supervisor::blame`] finds it here.
    fn give_chances(&mut self) -> bool {
        let now = Instant::now();
        let mut any = false;
        for bad in self.bad.values_mut().filter(|bad| bad.until.is_some_and(|until| until <= now)) {
            bad.until = None;
            any = true;
        }
        any
    }

    fn left_alone(&self) -> String {
        let devices: Vec<String> = self
            .skipped()
            .map(|(device, bad)| format!("GPU {device} is left alone: {}", bad.reason))
            .collect();
        devices.join("; ")
    }

    fn blame(&mut self, touched: String, reason: String) {
        // A new process cannot know yet who is where; what was known before says it.
        let index = touched.strip_prefix("index-").and_then(|index| index.parse().ok());
        let there = self.known.values().find(|gpu| index.is_some() && gpu.index == index);
        let device = there.map_or(touched, |gpu| gpu.pci_bus_id.clone());
        let now = Instant::now();
        // A failure long after another chance is a new one.
        let recent = self.bad.get(&device).filter(|bad| now.duration_since(bad.failed) < bad.wait + FORGIVEN);
        let wait = recent.map_or(self.timing.skip, |bad| (bad.wait * 2).min(Duration::from_secs(3600)));
        self.bad.insert(device, Bad { until: Some(now + wait), wait, failed: now, reason });
        self.intake.put(Fact::Health(Health { state: HealthState::Degraded, reason: self.left_alone() }));
    }

    fn down(&self, reason: String) {
        self.intake.put(Fact::Health(Health { state: HealthState::Down, reason }));
    }
}
