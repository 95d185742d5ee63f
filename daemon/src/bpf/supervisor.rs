//! Keeps one `bpf` process alive, and passes on what it reports and what it has to know.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use warpmeter_core::fact::{Discard, Fact, Health, HealthState, Source};
use warpmeter_core::identity::{GpuId, HostPid, MigId, PodUid};

use super::{Message, Order, Orders};
use crate::clock::pause;
use crate::nvidia::{Gate, Part};
use crate::pipeline::{Intake, Wanted};
use crate::process::{Abandoned, describe, lines, wait_briefly};
use crate::refusals::Refusals;

/// A process that reports nothing for so much longer than its period hangs. Loading programs takes a second or two.
const SILENCE: Duration = Duration::from_secs(10);
/// The wait before the first restart; doubled each time, up to a minute.
const RESTART: Duration = Duration::from_secs(1);

/// The supervisor.
#[derive(Debug)]
pub struct Supervisor {
    program: PathBuf,
    arguments: Vec<OsString>,
    orders: Orders,
    intake: Intake,
    gate: Arc<Gate>,
    wanted: Receiver<Wanted>,
    refusals: Refusals,
    holders: BTreeMap<GpuId, BTreeSet<HostPid>>,
    instances: Option<BTreeSet<MigId>>,
    abandoned: Abandoned,
}

/// How a process ended.
enum End {
    Stopped,
    Released,
    Useless,
    Failed(String),
}

impl Supervisor {
    /// Runs `program` with `arguments` and the JSON of the orders as the last one. `wanted` names processes that the
    /// driver sees.
    pub fn new(
        program: PathBuf,
        arguments: Vec<OsString>,
        orders: Orders,
        intake: &Intake,
        gate: Arc<Gate>,
        wanted: Receiver<Wanted>,
        refusals: Refusals,
    ) -> Self {
        Self {
            program,
            arguments,
            orders,
            intake: intake.of(Source::Probes),
            gate,
            wanted,
            refusals,
            holders: BTreeMap::new(),
            instances: None,
            abandoned: Abandoned::default(),
        }
    }

    /// Supervises until `stop` is set; looks at it at least ten times a second.
    pub fn run(mut self, stop: &AtomicBool) {
        let mut wait = RESTART;
        while !stop.load(Ordering::Relaxed) {
            if !self.gate.enter(Part::Libraries) {
                self.learn();
                pause(Duration::from_millis(100), stop);
                continue;
            }
            let began = Instant::now();
            let end = match self.spawn() {
                Ok(child) => self.watch(child, stop),
                Err(error) => End::Failed(format!("cannot start {}: {error}", self.program.display())),
            };
            match end {
                End::Stopped => break,
                // What it found missing does not come while this daemon runs; it has said what that is.
                End::Useless => {
                    self.gate.leave(Part::Libraries);
                    while !stop.load(Ordering::Relaxed) {
                        self.learn();
                        pause(Duration::from_millis(500), stop);
                    }
                }
                End::Released => {
                    while !self.abandoned.is_empty() && !stop.load(Ordering::Relaxed) {
                        pause(Duration::from_millis(20), stop);
                        self.abandoned.reap();
                    }
                    self.gate.leave(Part::Libraries);
                    let reason =
                        "released for maintenance; `warpmeter resume` attaches the probes again".into();
                    self.tell(HealthState::Off, reason);
                    wait = RESTART;
                }
                End::Failed(how) => {
                    self.tell(HealthState::Down, format!("the bpf process {how}; it is started anew"));
                    if began.elapsed() > Duration::from_secs(60) {
                        wait = RESTART;
                    }
                    self.abandoned.reap();
                    if self.abandoned.is_empty() {
                        self.gate.leave(Part::Libraries);
                    }
                    pause(wait, stop);
                    wait = (wait * 2).min(Duration::from_secs(60));
                }
            }
            self.abandoned.reap();
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(&self.program)
            .args(&self.arguments)
            .arg(serde_json::to_string(&self.orders)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
    }

    /// Passes on what the process reports until it hangs, dies or has to end.
    fn watch(&mut self, mut child: Child, stop: &AtomicBool) -> End {
        let (Some(output), Some(input)) = (child.stdout.take(), child.stdin.take()) else {
            return End::Failed("has no pipes".into());
        };
        let end = match (lines("bpf-pipe", output), Mouth::new(input)) {
            (Ok(lines), Ok(mouth)) => self.follow(&lines, mouth, stop),
            (Err(error), _) | (_, Err(error)) => End::Failed(format!("cannot be talked to: {error}")),
        };
        let end = match end {
            End::Failed(how) if how.is_empty() => {
                End::Failed(wait_briefly(&mut child).map_or_else(|| "closed its output".into(), describe))
            }
            other => other,
        };
        // Detaching is the kernel's work once it is gone, and nobody waits for it.
        self.abandoned.kill(child);
        end
    }

    fn follow(&mut self, lines: &Receiver<Vec<u8>>, mut mouth: Mouth, stop: &AtomicBool) -> End {
        let patience = SILENCE + Duration::from_nanos(self.orders.period);
        let mut heard = Instant::now();
        let mut refused: Option<BTreeSet<PodUid>> = None;
        if let Some(instances) = &self.instances {
            mouth.say(&Order::Instances(instances.iter().cloned().collect()));
        }
        for (gpu, pids) in &self.holders {
            mouth.say(&holders(gpu, pids));
        }
        loop {
            if stop.load(Ordering::Relaxed) {
                return End::Stopped;
            }
            if !self.gate.open() {
                return End::Released;
            }
            for order in self.learn() {
                mouth.say(&order);
            }
            let refusals = self.refusals.get();
            if refused.as_ref() != Some(&refusals)
                && mouth.say(&Order::Refusals(refusals.iter().cloned().collect()))
            {
                refused = Some(refusals);
            }
            match lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    heard = Instant::now();
                    match serde_json::from_slice(&line) {
                        Ok(Message::Sample(sample)) => self.intake.sample(sample),
                        Ok(Message::Useless) => return End::Useless,
                        Err(error) => {
                            tracing::debug!(%error, "a line of the bpf process does not parse");
                            self.intake.put(Fact::Discarded { reason: Discard::Garbage, count: 1 });
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                    return End::Failed(format!("was silent for {patience:?}"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return End::Failed(String::new()),
            }
        }
    }

    /// Takes in what the driver says of processes, and gives it as orders.
    fn learn(&mut self) -> Vec<Order> {
        let orders = self.wanted.try_iter().map(|wanted| match wanted {
            Wanted::Holders(gpu, pids) => {
                let order = holders(&gpu, &pids);
                self.holders.insert(gpu, pids);
                order
            }
            Wanted::Instances(instances) => {
                self.instances = Some(instances.clone());
                Order::Instances(instances.into_iter().collect())
            }
            Wanted::Also(pids) => Order::Look(pids.into_iter().map(|HostPid(pid)| pid).collect()),
        });
        orders.collect()
    }

    fn tell(&self, state: HealthState, reason: String) {
        self.intake.put(Fact::Health(Health { state, reason }));
    }
}

fn holders(gpu: &GpuId, pids: &BTreeSet<HostPid>) -> Order {
    Order::Holders { gpu: gpu.clone(), pids: pids.iter().map(|HostPid(pid)| *pid).collect() }
}

/// The process's standard input. What it does not take at once is lost to it: it looks at everything now and then.
struct Mouth {
    input: ChildStdin,
    /// The rest of a line of which a part was taken.
    rest: Vec<u8>,
}

impl Mouth {
    fn new(input: ChildStdin) -> std::io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&input)?;
        rustix::fs::fcntl_setfl(&input, flags | OFlags::NONBLOCK)?;
        Ok(Self { input, rest: Vec::new() })
    }

    /// Whether the order is on its way.
    fn say(&mut self, order: &Order) -> bool {
        if self.write() && self.rest.is_empty() {
            let Ok(mut line) = serde_json::to_vec(order) else { return false };
            line.push(b'\n');
            self.rest = line;
            return self.write();
        }
        false
    }

    fn write(&mut self) -> bool {
        while !self.rest.is_empty() {
            match self.input.write(&self.rest) {
                Ok(count) => drop(self.rest.drain(..count)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}
