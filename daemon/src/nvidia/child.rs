//! The body of the `nvidia` process: reports go to standard output, a line each.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use warpmeter_cuda::{Options, Report};

use super::{Message, Orders};
use crate::bpf::confine::lay_down;

/// Polls the driver until standard output is closed. `orders` is the JSON of [`Orders`].
pub fn run(orders: &str) -> Result<(), serde_json::Error> {
    let orders: Orders = serde_json::from_str(orders)?;
    // Nothing stays behind: if the daemon dies, so does this process, even in the middle of a call.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        tracing::warn!(%error, "the nvidia process would outlive a killed daemon until its next report");
    }
    if let Err(error) = lay_down(true) {
        tracing::warn!(%error, "the nvidia process keeps capabilities that it does not use");
    }
    let options = Options {
        libraries: orders.libraries,
        period: Duration::from_nanos(orders.period),
        skip: orders.skip,
        known: orders.known,
        cupti: orders.cupti.map(Into::into),
        dcgm: orders.dcgm,
    };
    let mut out = std::io::stdout().lock();
    let mut line = Vec::new();
    warpmeter_cuda::run(&options, &mut |report| {
        let message = match report {
            Report::Touch { pci_bus_id } => Message::Touch(pci_bus_id),
            Report::Released => Message::Released,
            Report::Sample(sample) => Message::Sample(sample),
        };
        line.clear();
        let encoded = serde_json::to_writer(&mut line, &message).map_err(std::io::Error::from);
        line.push(b'\n');
        // The daemon judges silence, so nothing may wait in a buffer.
        match encoded.and_then(|()| out.write_all(&line)).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    Ok(())
}
