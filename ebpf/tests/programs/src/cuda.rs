//! Sequences of calls of the CUDA driver whose meaning for gaps is known.

use std::ffi::{c_char, c_void};
use std::io::Read as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use libloading::Library;

use crate::now;

type Call<A> = unsafe extern "C" fn(A) -> u32;

/// The driver, with one context.
#[derive(Debug)]
pub struct Driver {
    library: Library,
    kernel: u64,
}

/// cuda.h's flag of a stream that does not wait for the legacy default stream.
pub const NON_BLOCKING: u32 = 1;

macro_rules! call {
    ($driver:expr, $name:literal, $($type:ty = $value:expr),*) => {{
        // SAFETY: the type is that of cuda.h, as far as it matters for registers.
        let function = unsafe {
            $driver.library.get::<unsafe extern "C" fn($($type),*) -> u32>(concat!($name, "\0").as_bytes())
        }
        .unwrap();
        // SAFETY: pointers are of live values.
        let code = unsafe { function($($value),*) };
        code
    }};
}

macro_rules! done {
    ($($what:tt)*) => { assert_eq!(call!($($what)*), 0) };
}

impl Driver {
    /// Opens it and makes the first device's context current. A kernel takes so many microseconds.
    pub fn open(kernel_us: u32) -> Self {
        // SAFETY: its initialisers have no precondition.
        let library = unsafe { Library::new("libcuda.so.1") }.unwrap();
        let mut driver = Self { library, kernel: 0 };
        let (mut context, mut module) = (0_u64, 0_u64);
        let mut uuid = [0_u8; 16];
        done!(driver, "cuInit", u32 = 0);
        done!(driver, "cuDeviceGetUuid_v2", *mut u8 = uuid.as_mut_ptr(), i32 = 0);
        done!(driver, "cuDevicePrimaryCtxRetain", *mut u64 = &raw mut context, i32 = 0);
        done!(driver, "cuCtxSetCurrent", u64 = context);
        let image = [0_u8; 8];
        done!(driver, "cuModuleLoadData", *mut u64 = &raw mut module, *const u8 = image.as_ptr());
        let name = std::ffi::CString::new(format!("us={kernel_us},sm=50,occ=50,dram=10,tensor=0")).unwrap();
        let mut kernel = 0;
        done!(driver, "cuModuleGetFunction", *mut u64 = &raw mut kernel, u64 = module, *const c_char = name.as_ptr());
        driver.kernel = kernel;
        println!("uuid {:032x}", u128::from_be_bytes(uuid));
        driver
    }

    /// A new stream.
    pub fn stream(&self, flags: u32) -> u64 {
        let mut stream = 0;
        done!(self, "cuStreamCreate", *mut u64 = &raw mut stream, u32 = flags);
        stream
    }

    /// A new event.
    pub fn event(&self) -> u64 {
        let mut event = 0;
        done!(self, "cuEventCreate", *mut u64 = &raw mut event, u32 = 2);
        event
    }

    /// Launches the kernel.
    pub fn launch(&self, stream: u64) {
        let null = std::ptr::null_mut();
        done!(self, "cuLaunchKernel", u64 = self.kernel, u32 = 1, u32 = 1, u32 = 1, u32 = 32, u32 = 1, u32 = 1,
            u32 = 0, u64 = stream, *mut c_void = null, *mut c_void = null);
    }

    /// Waits for a stream.
    pub fn synchronize(&self, stream: u64) {
        done!(self, "cuStreamSynchronize", u64 = stream);
    }

    /// Records an event in a stream.
    pub fn record(&self, event: u64, stream: u64) {
        done!(self, "cuEventRecord", u64 = event, u64 = stream);
    }
}

/// The byte of `cuInit` where a probe goes, as it is mapped.
pub fn byte_at_probe(library: &Path) -> u8 {
    // SAFETY: its initialisers have no precondition.
    let library = unsafe { Library::new(library) }.unwrap();
    // SAFETY: only its address is used.
    let entry = unsafe { library.get::<unsafe extern "C" fn(u32) -> u32>(b"cuInit\0") }.unwrap();
    let code = *entry as *const u8;
    // SAFETY: the trampoline is longer.
    unsafe { std::ptr::read_volatile(code.add(0x0a)) }
}

/// How long the host does something else.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs one sequence and prints what a reader of the maps must find: names and numbers.
pub fn run(name: &str) {
    let driver = Driver::open(2000);
    let began = now();
    match name {
        // Ten launches; in a captured graph of three, which is then launched four times.
        "capture" => {
            let stream = driver.stream(NON_BLOCKING);
            let side = driver.stream(NON_BLOCKING);
            let (fork, join) = (driver.event(), driver.event());
            for _ in 0..10 {
                driver.launch(stream);
            }
            driver.synchronize(stream);
            done!(driver, "cuStreamBeginCapture_v2", u64 = stream, u32 = 0);
            driver.launch(stream);
            driver.record(fork, stream);
            done!(driver, "cuStreamWaitEvent", u64 = side, u64 = fork, u32 = 0);
            driver.launch(side);
            driver.record(join, side);
            done!(driver, "cuStreamWaitEvent", u64 = stream, u64 = join, u32 = 0);
            driver.launch(stream);
            let (mut graph, mut ready) = (0_u64, 0_u64);
            done!(driver, "cuStreamEndCapture", u64 = stream, *mut u64 = &raw mut graph);
            done!(driver, "cuGraphInstantiateWithFlags", *mut u64 = &raw mut ready, u64 = graph, u64 = 0);
            for _ in 0..4 {
                done!(driver, "cuGraphLaunch", u64 = ready, u64 = stream);
            }
            driver.synchronize(stream);
            driver.launch(side);
            driver.synchronize(side);
            println!("launches 11\ngraphs 4\nenqueued 15");
        }
        // The event completes the first kernel only: the second is outstanding while the host pauses.
        "event" => {
            let stream = driver.stream(NON_BLOCKING);
            let event = driver.event();
            driver.launch(stream);
            driver.record(event, stream);
            driver.launch(stream);
            done!(driver, "cuEventSynchronize", u64 = event);
            sleep(PAUSE);
            driver.launch(stream);
            driver.record(event, stream);
            done!(driver, "cuEventSynchronize", u64 = event);
            // Now all is complete.
            let drained = now();
            sleep(PAUSE);
            let drained = now() - drained;
            driver.launch(stream);
            println!("drained {drained}");
        }
        // Two streams: the one's synchronisation leaves the other's work outstanding.
        "streams" => {
            let (first, second) = (driver.stream(NON_BLOCKING), driver.stream(NON_BLOCKING));
            driver.launch(first);
            driver.launch(second);
            driver.synchronize(first);
            sleep(PAUSE);
            driver.launch(first);
            driver.synchronize(first);
            driver.synchronize(second);
            let drained = now();
            sleep(PAUSE);
            let drained = now() - drained;
            driver.launch(first);
            println!("drained {drained}");
        }
        // The legacy default stream waits for blocking streams, not for others.
        "legacy" => {
            let (blocking, other) = (driver.stream(0), driver.stream(NON_BLOCKING));
            driver.launch(blocking);
            driver.launch(other);
            driver.synchronize(0);
            sleep(PAUSE);
            driver.synchronize(other);
            let mut drained = now();
            sleep(PAUSE);
            let mut sum = now() - drained;
            driver.launch(blocking);
            driver.synchronize(0);
            drained = now();
            sleep(PAUSE);
            sum += now() - drained;
            driver.launch(blocking);
            println!("drained {sum}");
        }
        // A side stream that the waited-for stream waited for; a query that finds it done; the whole context.
        "proofs" => {
            let (main, side) = (driver.stream(NON_BLOCKING), driver.stream(NON_BLOCKING));
            let event = driver.event();
            let mut sum = 0;
            let mut pause = || {
                let drained = now();
                sleep(PAUSE);
                sum += now() - drained;
            };
            driver.launch(side);
            driver.record(event, side);
            done!(driver, "cuStreamWaitEvent", u64 = main, u64 = event, u32 = 0);
            driver.launch(main);
            driver.synchronize(main);
            pause();
            driver.launch(main);
            while call!(driver, "cuStreamQuery", u64 = main) != 0 {}
            pause();
            driver.launch(main);
            driver.launch(side);
            // SAFETY: cuCtxSynchronize takes nothing.
            let all = unsafe { driver.library.get::<Call<()>>(b"cuCtxSynchronize\0") }.unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { all(()) }, 0);
            pause();
            driver.launch(main);
            println!("drained {sum}");
        }
        // Sizes are what the caller says, capped.
        "copies" => {
            let stream = driver.stream(NON_BLOCKING);
            let (mut device, mut host) = (0_u64, 0_u64);
            done!(driver, "cuMemAlloc_v2", *mut u64 = &raw mut device, usize = 1 << 20);
            done!(driver, "cuMemHostAlloc", *mut u64 = &raw mut host, usize = 1 << 20, u32 = 0);
            for _ in 0..3 {
                done!(
                    driver,
                    "cuMemcpyHtoDAsync_v2",
                    u64 = device,
                    u64 = host,
                    usize = 1 << 20,
                    u64 = stream
                );
            }
            driver.synchronize(stream);
            done!(driver, "cuMemcpyDtoH_v2", u64 = host, u64 = device, usize = 4096);
            done!(driver, "cuMemcpyHtoD_v2", u64 = device, u64 = host, usize = 100);
            done!(driver, "cuMemcpyDtoD_v2", u64 = device, u64 = device, usize = 50);
            // A lie, refused by the driver (there is no such stream) but seen by the probe.
            assert_ne!(
                call!(
                    driver,
                    "cuMemcpyDtoHAsync_v2",
                    u64 = host,
                    u64 = device,
                    usize = usize::MAX,
                    u64 = 999
                ),
                0
            );
            println!("up {}\ndown {}\nother 50", (3 << 20) + 100, 4096 + (1_u64 << 40));
        }
        // Large copies, and small ones in which the kernels before them are waited for.
        "items" => {
            const SIZE: usize = 16 << 20;
            let (mut device, mut host) = (0_u64, vec![0_u8; SIZE]);
            done!(driver, "cuMemAlloc_v2", *mut u64 = &raw mut device, usize = SIZE);
            let (mut took, mut most) = ([0, 0], 0);
            for _ in 0..10 {
                for (at, size) in [(0, SIZE), (1, 4)] {
                    let began = now();
                    done!(driver, "cuMemcpyDtoH_v2", *mut u8 = host.as_mut_ptr(), u64 = device, usize = size);
                    let spent = now() - began;
                    took[at] += spent;
                    // At 2 GB/s.
                    most += spent.min(size as u64 / 2);
                    driver.launch(0);
                    if at == 1 {
                        driver.synchronize(0);
                    }
                }
            }
            println!("large {}\nsmall {}\nmost {most}", took[0], took[1]);
        }
        // Copies that are only enqueued: of pinned memory, which is done at once, and of pageable memory.
        "held" => {
            const SIZE: usize = 16 << 20;
            let stream = driver.stream(NON_BLOCKING);
            let (mut device, mut pinned) = (0_u64, 0_u64);
            done!(driver, "cuMemAlloc_v2", *mut u64 = &raw mut device, usize = SIZE);
            done!(driver, "cuMemHostAlloc", *mut u64 = &raw mut pinned, usize = SIZE, u32 = 0);
            let pageable = vec![0_u8; SIZE];
            let mut held = [0, 0];
            for _ in 0..5 {
                for (at, host) in [(0, pinned), (1, pageable.as_ptr() as u64)] {
                    let began = now();
                    done!(
                        driver,
                        "cuMemcpyHtoDAsync_v2",
                        u64 = device,
                        u64 = host,
                        usize = SIZE,
                        u64 = stream
                    );
                    held[at] += now() - began;
                    driver.launch(stream);
                    driver.synchronize(stream);
                }
            }
            println!("pinned {}\npageable {}", held[0], held[1]);
        }
        other => panic!("no sequence {other}"),
    }
    println!("began {began}\nended {}", now());
    // The parent reads the maps before it lets go.
    let mut byte = [0];
    drop(std::io::stdin().read(&mut byte));
}
