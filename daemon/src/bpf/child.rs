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
use crate::sampling;

/// Probes or samples until standard input or output is closed. `orders` is the JSON of [`Orders`].
pub fn run(orders: &str) -> Result<(), serde_json::Error> {
    let orders: Orders = serde_json::from_str(orders)?;
    // Nothing stays behind: if the daemon dies, so does this process, and the kernel detaches its probes.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        tracing::warn!(%error, "the bpf process would outlive a killed daemon until its next report");
    }
    let mut out = Out::default();
    if let Err(why) = work(&orders, &mut out) {
        let (state, reason) = match orders.enabled {
            Enabled::Yes | Enabled::Proc => (HealthState::Down, why),
            Enabled::Auto | Enabled::No => {
                (HealthState::Off, format!("{why}; `[bpf] enabled = true` makes this a fault"))
            }
        };
        let fact = Fact::Health(Health { state, reason });
        // Nobody reads any more: then nobody has to know.
        let _closed = out.put(&Message::Sample(Sample { at: clock::now(), source: Source::Probes, fact }));
        let _closed = out.put(&Message::Useless);
    }
    Ok(())
}

/// Probes; where that is not wanted or does not work, samples.
fn work(orders: &Orders, out: &mut Out) -> Result<(), String> {
    let lacking = match orders.enabled {
        Enabled::Proc => {
            confine::keep(confine::SAMPLING).map_err(|error| error.to_string())?;
            None
        }
        Enabled::Auto | Enabled::Yes | Enabled::No => lacking()?,
    };
    confine::filter().map_err(|error| error.to_string())?;
    let told = listen().map_err(|error| format!("read orders: {error}"))?;
    let roots = HostRoots { proc: orders.proc.clone(), dev: orders.dev.clone(), ..HostRoots::default() };
    let instead = match (orders.enabled, lacking) {
        (Enabled::Proc, _) => None,
        (_, Some(why)) => Some(why),
        (_, None) => {
            let options = Options { proc: orders.proc.clone(), period: orders.period };
            let mut put = |sample| out.put(&Message::Sample(sample));
            let put = &mut |sample| put_with_use(sample, &mut put);
            match watch(&options, Here(Lookup::new(&roots)), &told, put) {
                Ok(()) => return Ok(()),
                Err(error) => Some(error.to_string()),
            }
        }
    };
    match (orders.enabled, instead) {
        (Enabled::Yes | Enabled::No, Some(why)) => Err(why),
        (_, instead) => {
            let options = sampling::Options { proc: orders.proc.clone(), period: orders.period, instead };
            let mut put = |sample| out.put(&Message::Sample(sample));
            sampling::run(&options, Lookup::new(&roots), &told, &mut |sample| put_with_use(sample, &mut put));
            Ok(())
        }
    }
}

/// Hands a sample on; with the end of a round, also what this process has used by then.
fn put_with_use(sample: Sample, put: &mut dyn FnMut(Sample) -> ControlFlow<()>) -> ControlFlow<()> {
    let (at, round) = (sample.at, matches!(sample.fact, Fact::Poll { .. }));
    put(sample)?;
    let own = if round { own_use() } else { None };
    own.map_or(ControlFlow::Continue(()), |own| {
        put(Sample { at, source: Source::Probes, fact: Fact::Own(own) })
    })
}

/// Gives up what probes do not need; says what they need and do not have.
fn lacking() -> Result<Option<String>, String> {
    let missing = confine::keep(confine::PROBING).map_err(|error| error.to_string())?;
    if missing.is_empty() {
        return Ok(None);
    }
    // Then they are of no use.
    confine::keep(confine::SAMPLING).map_err(|error| error.to_string())?;
    Ok(Some(confine::without(missing)))
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
