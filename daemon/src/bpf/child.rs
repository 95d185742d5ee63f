//! The body of the `bpf` process: orders come from standard input, reports go to standard output, a line each.

use std::io::{BufRead, Write};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Signal, set_parent_process_death_signal};
use warpmeter_core::fact::{Fact, Health, HealthState, Sample, Source};
use warpmeter_ebpf::{Options, run as watch};

use super::host::Here;
use super::{Enabled, Message, Order, Orders, confine};
use crate::clock;
use crate::host::{HostRoots, Lookup};
use crate::process::own_use;

/// Probes until standard input or output is closed. `orders` is the JSON of [`Orders`].
pub fn run(orders: &str) -> Result<(), serde_json::Error> {
    let orders: Orders = serde_json::from_str(orders)?;
    // Nothing stays behind: if the daemon dies, so does this process, and the kernel detaches its probes.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        tracing::warn!(%error, "the bpf process would outlive a killed daemon until its next report");
    }
    if let Err(why) = probe(&orders) {
        let (state, reason) = match orders.enabled {
            Enabled::Yes => (HealthState::Down, why),
            Enabled::Auto | Enabled::No => {
                (HealthState::Off, format!("{why}; `[bpf] enabled = true` makes this a fault"))
            }
        };
        let fact = Fact::Health(Health { state, reason });
        let mut out = Out::default();
        // Nobody reads any more: then nobody has to know.
        let _closed = out.put(&Message::Sample(Sample { at: clock::now(), source: Source::Probes, fact }));
        let _closed = out.put(&Message::Useless);
    }
    Ok(())
}

fn probe(orders: &Orders) -> Result<(), String> {
    match confine::keep_needed() {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => {
            let missing: Vec<&str> = missing.iter_names().map(|(name, _)| name).collect();
            return Err(format!(
                "probes take the capabilities BPF, PERFMON and SYS_PTRACE, of which it lacks {}: add them, or run as \
                 root",
                missing.join(", ")
            ));
        }
        Err(error) => return Err(error.to_string()),
    }
    confine::filter().map_err(|error| error.to_string())?;
    let told = listen().map_err(|error| format!("read orders: {error}"))?;
    let options = Options { proc: orders.proc.clone(), period: orders.period };
    let roots = HostRoots { proc: orders.proc.clone(), dev: orders.dev.clone() };
    let mut out = Out::default();
    let mut put = |sample| out.put(&Message::Sample(sample));
    watch(&options, Here(Lookup::new(&roots)), &told, &mut |sample| {
        let (at, round) = (sample.at, matches!(sample.fact, Fact::Poll { .. }));
        put(sample)?;
        // What a round took is known at its end.
        let own = if round { own_use() } else { None };
        own.map_or(ControlFlow::Continue(()), |own| {
            put(Sample { at, source: Source::Probes, fact: Fact::Own(own) })
        })
    })
    .map_err(|error| error.to_string())
}

/// Orders as they come. The thread ends with standard input, and with it everything.
fn listen() -> std::io::Result<Receiver<warpmeter_ebpf::Order>> {
    let (sender, told) = channel();
    std::thread::Builder::new().name("orders".into()).spawn(move || {
        for line in std::io::stdin().lock().split(b'\n') {
            let Ok(order) = line.map_err(drop).and_then(|line| serde_json::from_slice(&line).map_err(drop))
            else {
                break;
            };
            let order = match order {
                Order::Look(pids) => warpmeter_ebpf::Order::Look(pids),
                Order::Holders { gpu, pids } => warpmeter_ebpf::Order::Holders(gpu, pids),
                Order::Instances(instances) => warpmeter_ebpf::Order::Instances(instances),
                Order::Refusals(pods) => warpmeter_ebpf::Order::Refusals(pods),
            };
            if sender.send(order).is_err() {
                break;
            }
        }
    })?;
    Ok(told)
}

/// Standard output.
#[derive(Debug, Default)]
struct Out {
    line: Vec<u8>,
}

impl Out {
    fn put(&mut self, message: &Message) -> ControlFlow<()> {
        self.line.clear();
        let encoded = serde_json::to_writer(&mut self.line, message).map_err(std::io::Error::from);
        self.line.push(b'\n');
        let mut out = std::io::stdout().lock();
        // The daemon judges silence, so nothing may wait in a buffer.
        match encoded.and_then(|()| out.write_all(&self.line)).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
