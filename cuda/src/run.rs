//! The body of the nvidia process.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use warpmeter_core::fact::{Fact, Health, HealthState};
use warpmeter_core::inventory::Inventory;
use warpmeter_core::time::{MonoNs, SECOND};

use crate::absent::Known;
use crate::clock::{self, Pace};
use crate::cupti::{self, Monitors};
use crate::driver::Driver;
use crate::gpu::Tools;
use crate::library::{Search, find_library, is_outdated};
use crate::nvml::sys::{GpmBuffer, Library, OpenError};
use crate::own;
use crate::report::{Ending, Options, Outlet, Report};
use crate::sieve::Sieve;

/// The first pause before another try to open the driver; doubled each time.
const FIRST_PAUSE: u64 = SECOND;
/// The longest.
const LAST_PAUSE: u64 = 10 * SECOND;
/// How often this process's own use is reported.
const OWN: u64 = 5 * SECOND;

/// Polls the driver until nobody listens. `emit` is called from this thread only.
///
/// A driver that is absent, or goes away, is waited for: the library is closed, and looked for and opened again.
pub fn run(options: &Options, emit: &mut dyn FnMut(Report) -> ControlFlow<()>) -> Ending {
    let mut outlet = Outlet::new(emit);
    let mut body = Body::default();
    let period = u64::try_from(options.period.as_nanos()).unwrap_or(u64::MAX);
    let pace = Pace::new(period);
    while !outlet.closed() {
        let search = find_library(&options.libraries);
        match open(&search, &mut outlet) {
            Ok((library, path)) => {
                body.pause = FIRST_PAUSE;
                let monitors = Monitors::new(options.cupti.clone(), &path, pace.period());
                let (gone, started) = body.serve(library, monitors, options, pace, &mut outlet);
                if let Some(health) = gone {
                    body.down(health, &mut outlet);
                }
                if started || is_outdated(&path) {
                    return Ending::Outdated;
                }
            }
            Err(reason) => body.down(reason, &mut outlet),
        }
        if !outlet.closed() {
            body.own(&mut outlet);
            wait(body.pause, &mut outlet);
            body.pause = body.pause.saturating_mul(2).min(LAST_PAUSE);
        }
    }
    Ending::Closed
}

/// Waits, and shows once a second that it waits and does not hang.
fn wait(nanos: u64, outlet: &mut Outlet<'_>) {
    let until = clock::now().plus(nanos);
    while !outlet.closed() {
        let left = until.since(clock::now()).min(SECOND);
        if left == 0 {
            return;
        }
        std::thread::sleep(Duration::from_nanos(left));
        outlet.alive();
    }
}

/// Opens the first library that starts, or says why none did and what to do.
fn open(search: &Search, outlet: &mut Outlet<'_>) -> Result<(Rc<Library>, PathBuf), String> {
    let mut first = None;
    for path in &search.found {
        match outlet.touching(Report::DRIVER, || Library::open(path)) {
            Ok(library) => return Ok((library, path.clone())),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    if let Some(error) = first {
        return Err(format!("{error}; {}", remedy(&error)));
    }
    let unfit = search.rejected.iter().filter(|rejected| rejected.path.symlink_metadata().is_ok());
    let unfit: Vec<String> =
        unfit.map(|rejected| format!("{}: {}", rejected.path.display(), rejected.reason)).collect();
    if !unfit.is_empty() {
        return Err(format!(
            "no usable driver library: {}; name another in [nvidia] libraries",
            unfit.join("; ")
        ));
    }
    let looked = search.rejected.iter().filter_map(|rejected| rejected.path.parent());
    let looked = looked.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    Err(format!(
        "no driver library in {looked}; install the driver, or name the directory in [nvidia] libraries"
    ))
}

/// What helps against a driver that does not start.
fn remedy(error: &OpenError) -> &'static str {
    match error.source {
        NvmlError::DriverNotLoaded => "load the kernel module `nvidia`, or wait for the driver container",
        NvmlError::LibRmVersionMismatch => {
            "the library and the loaded kernel module are of different versions: reload the module or reboot"
        }
        NvmlError::NoPermission | NvmlError::OperatingSystem => {
            "allow this process to open /dev/nvidiactl and /dev/nvidia*"
        }
        NvmlError::LibloadingError(_) => {
            "the file cannot be loaded: check that it belongs to the running driver"
        }
        _ => "see the kernel's log",
    }
}

/// What outlives a driver.
#[derive(Debug)]
struct Body {
    known: Known,
    health: Option<Health>,
    /// Whether the empty inventory of an absent driver was sent.
    empty: bool,
    pause: u64,
    own: MonoNs,
}

impl Default for Body {
    fn default() -> Self {
        Self { known: Known::new(), health: None, empty: false, pause: FIRST_PAUSE, own: MonoNs(0) }
    }
}

impl Body {
    /// Rounds on the period's boundaries until the driver goes away, which gives the reason, or nobody listens. Says
    /// also whether the driver's CUDA library was started.
    fn serve(
        &mut self,
        library: Rc<Library>,
        monitors: Monitors,
        options: &Options,
        pace: Pace,
        outlet: &mut Outlet<'_>,
    ) -> (Option<String>, bool) {
        let tools = Tools {
            buffer: GpmBuffer::new(),
            sieve: Sieve::default(),
            wanted: options.cupti.clone(),
            dcgm: options.dcgm,
            period: pace.period(),
        };
        let mut known = std::mem::take(&mut self.known);
        let mut driver =
            outlet.touching(Report::DRIVER, || Driver::new(library, options, &mut known, monitors, tools));
        self.empty = false;
        let gone = loop {
            let began = clock::now();
            if let Err(fault) = driver.round(outlet) {
                let reason = fault.reason();
                break Some(format!(
                    "the driver went away ({reason}); it is opened again as soon as it is back"
                ));
            }
            self.report_health(driver.health(), outlet);
            self.own(outlet);
            if outlet.closed() {
                break None;
            }
            let mut left = pace.sleep(began, clock::now());
            while left > cupti::DRAIN && options.cupti.is_some() {
                std::thread::sleep(Duration::from_nanos(cupti::DRAIN));
                driver.drain(outlet);
                left = pace.sleep(began, clock::now());
            }
            std::thread::sleep(Duration::from_nanos(left));
        };
        let started = driver.close(outlet);
        self.known = known;
        (gone, started)
    }

    fn down(&mut self, reason: String, outlet: &mut Outlet<'_>) {
        if !self.empty {
            outlet.fact(Fact::Inventory(Inventory { driver: None, gpus: Vec::new() }));
            self.empty = true;
        }
        self.report_health(Health { state: HealthState::Down, reason }, outlet);
    }

    fn report_health(&mut self, health: Health, outlet: &mut Outlet<'_>) {
        if self.health.as_ref() != Some(&health) {
            outlet.fact(Fact::Health(health.clone()));
            self.health = Some(health);
        }
    }

    fn own(&mut self, outlet: &mut Outlet<'_>) {
        let now = clock::now();
        if now.since(self.own) < OWN && self.own != MonoNs(0) {
            return;
        }
        self.own = now;
        if let Some(own) = own::usage() {
            outlet.fact(Fact::Own(own));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_says_so_once_and_goes_on() {
        let nowhere = tempfile::tempdir().unwrap();
        let options = Options { libraries: vec![nowhere.path().to_owned()], ..Options::default() };
        let mut facts = Vec::new();
        let mut emit = |report: Report| {
            if let Report::Sample(sample) = report {
                facts.push(sample.fact);
            }
            if facts.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        assert_eq!(run(&options, &mut emit), Ending::Closed);
        let [Fact::Inventory(inventory), Fact::Health(health), Fact::Own(_)] = facts.as_slice() else {
            panic!("{facts:?}");
        };
        assert_eq!(inventory.gpus.len(), 0);
        assert_eq!(health.state, HealthState::Down);
        assert!(health.reason.contains("install the driver"));
    }

    #[test]
    fn a_library_that_is_none_is_down_with_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libnvidia-ml.so.1");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let mut emit = |_| ControlFlow::Continue(());
        let error = open(&find_library(&[path]), &mut Outlet::new(&mut emit)).unwrap_err();
        assert!(error.contains("the file cannot be loaded"), "{error}");
    }
}
