//! The programs.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::driver::{Context, Driver, DriverError, Kernel, Stream};
use crate::report::{Account, monotonic_ns};
use crate::stop::End;
use crate::{Common, Hog, Program, Server, Step, Wait, Waiter};

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// The driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A file to read or write.
    #[error("{0}")]
    File(PathBuf, #[source] std::io::Error),
    /// A thread ended by a panic.
    #[error("a thread panicked")]
    Panic,
}

type Outcome = Result<Account, ProgramError>;

/// Runs a program to its end.
pub(crate) fn run(program: &Program) -> Result<(), ProgramError> {
    let start = monotonic_ns();
    let (name, common, outcome) = match program {
        Program::Trainer(p) => ("trainer", &p.common, on_threads(&p.common, |d| trainer(d, p))),
        Program::Waiter(p) => ("waiter", &p.step.common, on_threads(&p.step.common, |d| waiter(d, p))),
        Program::Notebook(p) => ("notebook", p, on_threads(p, |d| notebook(d))),
        Program::Server(p) => ("server", &p.common, on_threads(&p.common, |d| server(d, p))),
        Program::Hog(p) => ("hog", &p.common, on_threads(&p.common, |d| hog(d, p))),
        Program::Noop(p) => ("noop", p, Ok(idle(End::after(p.seconds)))),
        Program::Holder(p) => ("holder", p, on_threads(p, |d| Ok(idle(d.end)))),
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
            sum.add(&thread.join().map_err(|_| ProgramError::Panic)??);
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
    Ok(Device { driver, kernel, nanos, stream: driver.stream()?, end, account: Account::default() })
}

impl Device<'_> {
    fn launch(&mut self, kernels: u32) -> Result<(), DriverError> {
        let start = Instant::now();
        for _ in 0..kernels {
            self.driver.launch(self.kernel, self.stream)?;
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
}

impl<'a> Steps<'a> {
    fn new(d: &Device<'_>, plan: &'a Step) -> Result<Self, DriverError> {
        let bytes = plan.upload_kib << 10;
        let (host, target) = if bytes > 0 { (d.driver.pinned(bytes)?, d.driver.allocate(bytes)?) } else { (0, 0) };
        Ok(Self { plan, host, target, bytes })
    }

    fn run(&self, d: &mut Device<'_>) -> Result<(), DriverError> {
        if self.bytes > 0 {
            d.driver.upload(self.target, self.host, self.bytes, d.stream)?;
            d.account.uploaded += self.bytes as u64;
        }
        compute(Duration::from_micros(self.plan.host_us));
        d.launch(self.plan.kernels)?;
        d.synchronize()?;
        d.account.steps += 1;
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
    let mut data = Data::open(plan)?;
    while !d.end.reached() {
        let start = Instant::now();
        data.wait(plan, d.end)?;
        d.account.waiting += start.elapsed();
        steps.run(d)?;
    }
    Ok(d.account)
}

fn notebook(d: &mut Device<'_>) -> Outcome {
    d.launch(1)?;
    d.synchronize()?;
    let end = d.end;
    d.account.steps = 1;
    d.account.waiting += idle(end).waiting;
    Ok(d.account)
}

fn server(d: &mut Device<'_>, plan: &Server) -> Outcome {
    let period = Duration::from_millis(plan.period_ms);
    let mut next = Instant::now() + period;
    let answer = d.driver.allocate(4096)?;
    let mut buffer = [0_u8; 4096];
    while !d.end.reached() {
        d.launch(plan.kernels)?;
        d.synchronize()?;
        d.driver.download(buffer.as_mut_ptr().addr() as u64, answer, buffer.len())?;
        d.account.steps += 1;
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
        d.launch(batch)?;
        d.driver.record(event, d.stream)?;
        if plan.duty < 1.0 {
            if start.elapsed() >= period.mul_f64(plan.duty.clamp(0.0, 1.0)) {
                d.synchronize()?;
                let rest = period.saturating_sub(start.elapsed());
                d.pause(rest);
                start = Instant::now();
            }
        }
        d.account.steps += 1;
    }
    d.synchronize()?;
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
fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Where a waiter's data comes from.
enum Data {
    Nothing,
    File { file: File, path: PathBuf, buffer: Vec<u8>, aligned: usize, offset: u64 },
    Feeder(mpsc::Receiver<()>),
}

impl Data {
    fn open(plan: &Waiter) -> Result<Self, ProgramError> {
        match plan.wait {
            Wait::Sleep | Wait::Cpu => Ok(Self::Nothing),
            Wait::Lock => {
                let (send, receive) = mpsc::sync_channel(0);
                let time = Duration::from_micros(plan.wait_us);
                std::thread::spawn(move || {
                    loop {
                        compute(time);
                        if send.send(()).is_err() {
                            return;
                        }
                    }
                });
                Ok(Self::Feeder(receive))
            }
            Wait::Disk => {
                let path = plan.file.clone().unwrap_or_else(|| "/proc/self/exe".into());
                let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
                let file = direct.or_else(|_| File::open(&path)).map_err(|e| ProgramError::File(path.clone(), e))?;
                let buffer = vec![0; (plan.read_kib << 10) + 4096];
                let aligned = buffer.as_ptr().align_offset(4096).min(4096);
                Ok(Self::File { file, path, buffer, aligned, offset: 0 })
            }
        }
    }

    fn wait(&mut self, plan: &Waiter, end: End) -> Result<(), ProgramError> {
        match self {
            Self::Nothing if plan.wait == Wait::Cpu => compute(Duration::from_micros(plan.wait_us)),
            Self::Nothing => end.sleep(Duration::from_micros(plan.wait_us)),
            Self::Feeder(data) => {
                // The feeder lives as long as this end of the channel.
                data.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
            }
            Self::File { file, path, buffer, aligned, offset } => {
                use std::os::unix::fs::FileExt;
                let range = *aligned..*aligned + (plan.read_kib << 10);
                let target = buffer.get_mut(range).unwrap_or_default();
                let read = file.read_at(target, *offset).map_err(|e| ProgramError::File(path.clone(), e))?;
                *offset = if read < target.len() { 0 } else { *offset + read as u64 };
            }
        }
        Ok(())
    }
}
