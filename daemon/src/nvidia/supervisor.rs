//! Keeps one `nvidia` process alive.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Fact, Health, HealthState, Sample, Source};

use super::devices::{CUPTI, Devices};
use super::gate::Part;
use super::{Gate, Message, Orders};
use crate::clock::pause;
use crate::pipeline::Intake;
use crate::process::{Abandoned, describe, lines, wait_briefly};

/// The name of the driver itself among the things that are touched.
const DRIVER: &str = "driver";

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

/// The supervisor.
#[derive(Debug)]
pub struct Supervisor {
    program: PathBuf,
    arguments: Vec<OsString>,
    orders: Orders,
    timing: Timing,
    intake: Intake,
    gate: Arc<Gate>,
    devices: Devices,
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
            devices: Devices::new(timing.skip),
            abandoned: Abandoned::default(),
        }
    }

    /// Supervises until `stop` is set; looks at it at least ten times a second.
    pub fn run(mut self, stop: &AtomicBool) {
        let mut wait = self.timing.restart;
        while !stop.load(Ordering::Relaxed) {
            if !self.gate.enter(Part::Driver) {
                pause(Duration::from_millis(100), stop);
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
                    self.devices.clear();
                    while !self.abandoned.is_empty() && !stop.load(Ordering::Relaxed) {
                        pause(Duration::from_millis(20), stop);
                        self.abandoned.reap();
                    }
                    self.gate.leave(Part::Driver);
                    wait = self.timing.restart;
                    continue;
                }
                End::Retry => wait = self.timing.restart,
                End::Hung { at: Some(device) } if device != DRIVER => {
                    let hang = self.timing.hang;
                    let call =
                        if device.starts_with(CUPTI) { "a call of CUPTI" } else { "a driver call on it" };
                    self.blame(device, format!("{call} did not return within {hang:?}"));
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
            pause(wait, stop);
            wait = (wait * 2).min(Duration::from_secs(60));
            self.abandoned.reap();
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let (skip, known) = (self.devices.skipped(), self.devices.by_index());
        let orders = Orders { skip, known, ..self.orders.clone() };
        Command::new(&self.program)
            .args(&self.arguments)
            .arg(serde_json::to_string(&orders)?)
            // What is hidden from CUDA programs is none of its concern.
            .env_remove("CUDA_VISIBLE_DEVICES")
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
            if self.devices.give_chances(Instant::now()) {
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
            Fact::Inventory(inventory) => self.devices.complete(inventory),
            Fact::Health(health) => self.devices.degrade(health),
            _ => {}
        }
        self.intake.sample(sample);
    }

    fn blame(&mut self, device: String, reason: String) {
        self.devices.blame(device, reason, Instant::now());
        let mut health = Health { state: HealthState::Up, reason: String::new() };
        self.devices.degrade(&mut health);
        self.intake.put(Fact::Health(health));
    }

    fn down(&self, reason: String) {
        self.intake.put(Fact::Health(Health { state: HealthState::Down, reason }));
    }
}
