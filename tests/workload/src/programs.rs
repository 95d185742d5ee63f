//! The programs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::data::Data;
use crate::driver::{Context, Driver, DriverError, Kernel, Stream};
use crate::report::{Account, monotonic_ns};
use crate::stop::End;
use crate::{Common, Hog, Program, Server, Step, Waiter, data, network};

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// The driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A file to read or write.
    #[error("{0}")]
    File(PathBuf, #[source] std::io::Error),
    /// A connection.
    #[error("{0}")]
    Network(SocketAddr, #[source] std::io::Error),
    /// A thread ended by a panic.
    #[error("a thread panicked")]
    Panic,
}

/// Host work of a step of a program that has calmed down.
const CALM: Duration = Duration::from_millis(20);

type Outcome = Result<Account, ProgramError>;

/// Runs a program to its end.
pub(crate) fn run(program: &Program) -> Result<(), ProgramError> {
    let start = monotonic_ns();
    let (name, common, outcome) = match program {
        Program::Feeder(p) => return network::feed(p.listen, Duration::from_micros(p.delay_us), p.seconds),
        Program::Relay(p) => return data::relay(p),
        Program::Client(p) => {
            return network::ask_often(p.connect, Duration::from_millis(p.period_ms), p.seconds);
        }
        Program::Trainer(p) => ("trainer", &p.common, on_threads(&p.common, |d| trainer(d, p))),
        Program::Waiter(p) => ("waiter", &p.step.common, on_threads(&p.step.common, |d| waiter(d, p))),
        Program::Notebook(p) => ("notebook", p, on_threads(p, notebook)),
        Program::Server(p) => ("server", &p.common, on_threads(&p.common, |d| server(d, p))),
        Program::Hog(p) => ("hog", &p.common, on_threads(&p.common, |d| hog(d, p))),
        Program::Noop(p) => ("noop", p, Ok(idle(End::after(p.seconds)))),
        Program::Holder(p) => ("holder", p, on_threads(p, |d| Ok(idle(d.end)))),
        Program::MpsServer(p) => {
            // Before it opens the driver, which knows it by its name.
            let name = PathBuf::from("/proc/self/comm");
            std::fs::write(&name, "nvidia-cuda-mps-server").map_err(|e| ProgramError::File(name, e))?;
            ("mps-server", p, on_threads(p, serve_others))
        }
    };
    let account = outcome?;
    match &common.report {
        Some(path) => account.write(path, name, start).map_err(|e| ProgramError::File(path.clone(), e)),
        None => Ok(()),
    }
}

/// A thread's view of its device.
struct Device<'a> {
    driver: &'a Driver,
    kernel: Kernel,
    block: u32,
    shared: u32,
    nanos: u64,
    stream: Stream,
    end: End,
    account: Account,
}

fn on_threads(common: &Common, body: impl Fn(&mut Device<'_>) -> Outcome + Sync) -> Outcome {
    let end = End::after(common.seconds);
    let driver = Driver::open(&common.library)?;
    let context = driver.context(common.device, common.blocking_sync)?;
    if common.memory_mib > 0 {
        driver.allocate(common.memory_mib << 20)?;
    }
    if common.threads <= 1 {
        return body(&mut device(&driver, context, common, end)?);
    }
    std::thread::scope(|scope| {
        let work = || body(&mut device(&driver, context, common, end)?);
        let threads: Vec<_> = (0..common.threads).map(|_| scope.spawn(work)).collect();
        let mut sum = Account::default();
        for thread in threads {
            sum.add(&thread.join().ok().ok_or(ProgramError::Panic)??);
        }
        Ok(sum)
    })
}

fn device<'a>(
    driver: &'a Driver,
    context: Context,
    common: &Common,
    end: End,
) -> Result<Device<'a>, ProgramError> {
    driver.enter(context)?;
    let Common { kernel_us, sm, occ, dram, tensor, .. } = common;
    let kernel = driver.kernel(&format!("us={kernel_us},sm={sm},occ={occ},dram={dram},tensor={tensor}"))?;
    let nanos = Duration::try_from_secs_f64(kernel_us / 1e6).unwrap_or_default().as_nanos();
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    let (block, shared) = (common.block, common.shared);
    Ok(Device {
        driver,
        kernel,
        block,
        shared,
        nanos,
        stream: driver.stream()?,
        end,
        account: Account::default(),
    })
}

impl Device<'_> {
    fn launch(&mut self, kernels: u32, gap: Duration) -> Result<(), DriverError> {
        let start = Instant::now();
        for _ in 0..kernels {
            self.driver.launch(self.kernel, self.block, self.shared, self.stream)?;
            if !gap.is_zero() {
                compute(gap);
            }
        }
        self.account.launching += start.elapsed();
        self.account.kernels += u64::from(kernels);
        self.account.kernel += Duration::from_nanos(self.nanos) * kernels;
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), DriverError> {
        let start = Instant::now();
        self.driver.synchronize(self.stream)?;
        self.account.synchronizing += start.elapsed();
        Ok(())
    }

    fn pause(&mut self, time: Duration) {
        let start = Instant::now();
        self.end.sleep(time);
        self.account.waiting += start.elapsed();
    }
}

/// Steps on a device: upload, host work, kernels, synchronisation.
struct Steps<'a> {
    plan: &'a Step,
    host: u64,
    target: u64,
    bytes: usize,
    begun: Instant,
}

impl<'a> Steps<'a> {
    fn new(d: &Device<'_>, plan: &'a Step) -> Result<Self, DriverError> {
        let bytes = plan.upload_kib << 10;
        let (host, target) =
            if bytes > 0 { (d.driver.pinned(bytes)?, d.driver.allocate(bytes)?) } else { (0, 0) };
        Ok(Self { plan, host, target, bytes, begun: Instant::now() })
    }

    fn run(&self, d: &mut Device<'_>) -> Result<(), ProgramError> {
        if self.bytes > 0 {
            d.driver.upload(self.target, self.host, self.bytes, d.stream)?;
            d.account.uploaded += self.bytes as u64;
        }
        let calm = self.plan.calm_after > 0.0 && self.begun.elapsed().as_secs_f64() > self.plan.calm_after;
        compute(Duration::from_micros(self.plan.host_us).max(if calm { CALM } else { Duration::ZERO }));
        d.launch(self.plan.kernels, Duration::from_micros(self.plan.gap_us))?;
        d.synchronize()?;
        d.account.steps += 1;
        let every = self.plan.checkpoint_every;
        if every > 0 && d.account.steps.is_multiple_of(every) {
            let start = Instant::now();
            data::write_checkpoint(&self.plan.checkpoint_file, self.plan.checkpoint_mib << 20)?;
            d.account.waiting += start.elapsed();
        }
        Ok(())
    }
}

fn trainer(d: &mut Device<'_>, plan: &Step) -> Outcome {
    let steps = Steps::new(d, plan)?;
    while !d.end.reached() {
        steps.run(d)?;
    }
    Ok(d.account)
}

fn waiter(d: &mut Device<'_>, plan: &Waiter) -> Outcome {
    let steps = Steps::new(d, &plan.step)?;
    let mut data = Data::open(&plan.source)?;
    while !d.end.reached() {
        let start = Instant::now();
        data.wait(&plan.source, d.end)?;
        d.account.waiting += start.elapsed();
        steps.run(d)?;
    }
    Ok(d.account)
}

fn notebook(d: &mut Device<'_>) -> Outcome {
    d.launch(1, Duration::ZERO)?;
    d.synchronize()?;
    let end = d.end;
    d.account.steps = 1;
    d.account.waiting += idle(end).waiting;
    Ok(d.account)
}

fn server(d: &mut Device<'_>, plan: &Server) -> Outcome {
    let answer = d.driver.allocate(4096)?;
    let mut buffer = [0_u8; 4096];
    let mut serve = |d: &mut Device<'_>| -> Result<(), ProgramError> {
        d.launch(plan.kernels, Duration::ZERO)?;
        d.synchronize()?;
        d.driver.download(buffer.as_mut_ptr().addr() as u64, answer, buffer.len())?;
        d.account.steps += 1;
        Ok(())
    };
    if let Some(address) = plan.listen {
        let mut requests = network::Requests::listen(address)?;
        while requests.next(d.end)? {
            serve(d)?;
            requests.answer();
        }
        d.account.waiting = requests.waited();
        return Ok(d.account);
    }
    let period = Duration::from_millis(plan.period_ms);
    let mut next = Instant::now() + period;
    while !d.end.reached() {
        serve(d)?;
        d.pause(next.saturating_duration_since(Instant::now()));
        next += period;
    }
    Ok(d.account)
}

/// Kernels queued at once: enough to hide the host, few enough to stop in time.
const BATCH: Duration = Duration::from_millis(4);

fn hog(d: &mut Device<'_>, plan: &Hog) -> Outcome {
    let period = Duration::from_millis(plan.period_ms);
    let batch = u32::try_from(BATCH.as_nanos() / u128::from(d.nanos.max(1))).unwrap_or(1).clamp(1, 400);
    let events = [d.driver.event()?, d.driver.event()?];
    let mut start = Instant::now();
    while !d.end.reached() {
        // Two batches in flight: one runs while the other is queued.
        let event = events[usize::from(d.account.steps % 2 == 1)];
        let waited = Instant::now();
        d.driver.synchronize_event(event)?;
        d.account.synchronizing += waited.elapsed();
        d.launch(batch, Duration::ZERO)?;
        d.driver.record(event, d.stream)?;
        if plan.duty < 1.0 && start.elapsed() >= period.mul_f64(plan.duty.max(0.0)) {
            d.synchronize()?;
            d.pause(period.saturating_sub(start.elapsed()));
            start = Instant::now();
        }
        d.account.steps += 1;
    }
    d.synchronize()?;
    Ok(d.account)
}

/// It calls the driver and asks for no work: that is its clients'.
fn serve_others(d: &mut Device<'_>) -> Outcome {
    while !d.end.reached() {
        d.synchronize()?;
        d.pause(Duration::from_secs(1));
    }
    Ok(d.account)
}

fn idle(end: End) -> Account {
    let start = Instant::now();
    while !end.reached() {
        end.sleep(Duration::from_secs(1));
    }
    Account { waiting: start.elapsed(), ..Account::default() }
}

/// Keeps the processor busy.
pub(crate) fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
