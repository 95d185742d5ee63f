//! The library as a program uses it: opened by name, called through its C ABI.
//!
//! All tests of this file share one process, hence one node and one `cuInit`; each works in streams of its own.
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, reason = "a failed step is a failed test")]

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libloading::Library;
use tempfile::TempDir;
use warpmeter_simgpu::{Model, Node, Scenario};

struct Fixture {
    library: Library,
    node: Node,
    context: u64,
    _dir: TempDir,
}

fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().join("libsimgpu_cuda.so")
}

/// The driver, with the primary context of device 0 current in this thread.
fn driver() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    let fixture = FIXTURE.get_or_init(|| {
        let dir = TempDir::new().unwrap();
        warpmeter_simgpu::create(dir.path(), &Scenario::of(Model::H100, 2)).unwrap();
        // SAFETY: set before any thread of this test reads the environment: the others wait for this cell.
        unsafe { std::env::set_var("SIMGPU_STATE", dir.path()) };
        // SAFETY: the library's initialisers have no precondition.
        let library = unsafe { Library::new(built()) }.unwrap();
        let node = Node::open(dir.path()).unwrap();
        let mut fixture = Fixture { library, node, context: 0, _dir: dir };
        assert_eq!(fixture.call::<fn(u32) -> u32>("cuInit")(0), 0);
        let mut context = 0;
        assert_eq!(
            fixture.call::<fn(*mut u64, i32) -> u32>("cuDevicePrimaryCtxRetain")(&raw mut context, 0),
            0
        );
        fixture.context = context;
        fixture
    });
    assert_eq!(fixture.call::<fn(u64) -> u32>("cuCtxSetCurrent")(fixture.context), 0);
    fixture
}

trait Abi: Copy {
    type C: Copy;
}

macro_rules! abi {
    ($($arg:ident)*) => {
        impl<$($arg: Copy,)* R: Copy> Abi for fn($($arg),*) -> R {
            type C = extern "C" fn($($arg),*) -> R;
        }
    };
}
abi!(A);
abi!(A B);
abi!(A B C);
abi!(A B C D);
abi!(A B C D E);

type Launch = extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, *mut c_void, *mut c_void) -> u32;

impl Fixture {
    fn call<F: Abi>(&self, name: &str) -> F::C {
        // SAFETY: the caller states the function's type; the library stays open as long as the process.
        *unsafe { self.library.get::<F::C>(name) }.unwrap()
    }

    fn stream(&self) -> u64 {
        let mut stream = 0;
        assert_eq!(self.call::<fn(*mut u64, u32) -> u32>("cuStreamCreate")(&raw mut stream, 1), 0);
        stream
    }

    fn kernel(&self, name: &CStr) -> u64 {
        let mut function = 0;
        let get = self.call::<fn(*mut u64, u64, *const c_char) -> u32>("cuModuleGetFunction");
        assert_eq!(get(&raw mut function, 1, name.as_ptr()), 0);
        function
    }

    fn launch(&self, function: u64, stream: u64) -> u32 {
        // SAFETY: the type is that of `cuLaunchKernel`.
        let launch = *unsafe { self.library.get::<Launch>("cuLaunchKernel") }.unwrap();
        launch(function, 1, 1, 1, 32, 1, 1, 0, stream, std::ptr::null_mut(), std::ptr::null_mut())
    }

    fn on_stream(&self, name: &str, stream: u64) -> u32 {
        self.call::<fn(u64) -> u32>(name)(stream)
    }
}

#[test]
fn entries_have_the_real_librarys_bytes() {
    let driver = driver();
    for name in ["cuInit", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuStreamSynchronize", "cuMemcpyHtoD_v2"]
    {
        let at = driver.call::<fn(u32) -> u32>(name) as *const u8;
        // SAFETY: a trampoline is 30 bytes of readable code.
        let code = unsafe { std::slice::from_raw_parts(at, 30) };
        assert_eq!(
            (&code[..2], &code[6..14]),
            (&[0x81, 0x3d][..], &[0, 0xba, 0x1c, 0x32, 0x74, 0x0c, 0xff, 0x25][..])
        );
        assert_eq!(code[18..], [0x66, 0x0f, 0x1f, 0x44, 0, 0, 0xb8, 4, 0, 0, 0, 0xc3]);
    }
}

#[test]
fn a_name_looked_up_gives_the_exported_symbol() {
    let driver = driver();
    let get = driver
        .call::<fn(*const c_char, *mut *const c_void, i32, u64, *mut u32) -> u32>("cuGetProcAddress_v2");
    let find = |name: &CStr, flags| {
        let (mut at, mut status) = (std::ptr::null(), 9);
        assert_eq!(get(name.as_ptr(), &raw mut at, 12_080, flags, &raw mut status), 0);
        (at.addr(), status)
    };
    let exported = |name| (driver.call::<fn(u32) -> u32>(name) as *const u8).addr();
    assert_eq!(find(c"cuLaunchKernel", 1), (exported("cuLaunchKernel"), 0));
    assert_eq!(find(c"cuLaunchKernel", 2), (exported("cuLaunchKernel_ptsz"), 0));
    assert_eq!(find(c"cuMemcpyHtoDAsync", 1), (exported("cuMemcpyHtoDAsync_v2"), 0));
    assert_eq!(find(c"cuMemAlloc", 0), (exported("cuMemAlloc_v2"), 0));
    assert_eq!(find(c"cuNoSuchThing", 0), (0, 1));
}

#[test]
fn synchronising_takes_as_long_as_the_kernels() {
    let driver = driver();
    let stream = driver.stream();
    let kernel = driver.kernel(c"us=10000,sm=1");
    let clock = Instant::now();
    for _ in 0..5 {
        assert_eq!(driver.launch(kernel, stream), 0);
    }
    assert_eq!(driver.on_stream("cuStreamQuery", stream), 600);
    assert_eq!(driver.on_stream("cuStreamSynchronize", stream), 0);
    assert!(clock.elapsed() >= Duration::from_millis(50));
    assert_eq!(driver.on_stream("cuStreamQuery", stream), 0);
    assert_eq!(driver.launch(0x1234, stream), 400);
}

#[test]
fn events_measure_the_device_and_hold_back_other_streams() {
    let driver = driver();
    let (a, b) = (driver.stream(), driver.stream());
    let create = driver.call::<fn(*mut u64, u32) -> u32>("cuEventCreate");
    let record = driver.call::<fn(u64, u64) -> u32>("cuEventRecord");
    let wait = driver.call::<fn(u64, u64, u32) -> u32>("cuStreamWaitEvent");
    let elapsed = driver.call::<fn(*mut f32, u64, u64) -> u32>("cuEventElapsedTime");
    let (mut from, mut to, mut last, mut ms) = (0, 0, 0, 0.0);
    for event in [&raw mut from, &raw mut to, &raw mut last] {
        assert_eq!(create(event, 0), 0);
    }
    assert_eq!(driver.on_stream("cuEventQuery", from), 0, "never recorded is complete");
    let kernel = driver.kernel(c"us=20000,sm=1");
    assert_eq!(record(from, a), 0);
    assert_eq!(driver.launch(kernel, a), 0);
    assert_eq!(record(to, a), 0);
    assert_eq!(elapsed(&raw mut ms, from, to), 600);
    assert_eq!(wait(b, to, 0), 0);
    assert_eq!(driver.launch(kernel, b), 0);
    assert_eq!(record(last, b), 0);
    assert_eq!(driver.on_stream("cuEventSynchronize", last), 0);
    assert_eq!(elapsed(&raw mut ms, from, to), 0);
    assert!((20.0..40.0).contains(&ms), "{ms}");
    assert_eq!(elapsed(&raw mut ms, to, last), 0);
    assert!(ms >= 20.0, "{ms}");
}

#[test]
fn a_graph_runs_what_was_captured_each_time_it_is_launched() {
    let driver = driver();
    let stream = driver.stream();
    let kernel = driver.kernel(c"us=3000,sm=1");
    let (mut graph, mut exec, mut nodes) = (0, 0, 0_usize);
    assert_eq!(driver.call::<fn(u64, u32) -> u32>("cuStreamBeginCapture_v2")(stream, 0), 0);
    for _ in 0..4 {
        assert_eq!(driver.launch(kernel, stream), 0);
    }
    assert_eq!(driver.on_stream("cuStreamSynchronize", stream), 900);
    assert_eq!(driver.call::<fn(u64, *mut u64) -> u32>("cuStreamEndCapture")(stream, &raw mut graph), 0);
    assert_eq!(driver.on_stream("cuStreamQuery", stream), 0, "a captured launch runs nothing");
    let count = driver.call::<fn(u64, *mut u64, *mut usize) -> u32>("cuGraphGetNodes");
    assert_eq!((count(graph, std::ptr::null_mut(), &raw mut nodes), nodes), (0, 4));
    let instantiate = driver.call::<fn(*mut u64, u64, u64) -> u32>("cuGraphInstantiateWithFlags");
    assert_eq!(instantiate(&raw mut exec, graph, 0), 0);
    let clock = Instant::now();
    for _ in 0..2 {
        assert_eq!(driver.call::<fn(u64, u64) -> u32>("cuGraphLaunch")(exec, stream), 0);
    }
    assert_eq!(driver.on_stream("cuStreamSynchronize", stream), 0);
    assert!(clock.elapsed() >= Duration::from_millis(24));
}

#[test]
fn a_host_function_runs_in_the_streams_order() {
    static CALLED_AT: AtomicU64 = AtomicU64::new(0);
    extern "C" fn note(start: *mut c_void) {
        // SAFETY: the test passes a pointer to an `Instant` that outlives the stream's work.
        let start = unsafe { *start.cast::<Instant>() };
        CALLED_AT.store(u64::try_from(start.elapsed().as_micros()).unwrap(), Ordering::SeqCst);
    }
    let driver = driver();
    let stream = driver.stream();
    let mut start = Instant::now();
    assert_eq!(driver.launch(driver.kernel(c"us=15000,sm=1"), stream), 0);
    let launch = driver.call::<fn(u64, extern "C" fn(*mut c_void), *mut c_void) -> u32>("cuLaunchHostFunc");
    assert_eq!(launch(stream, note, (&raw mut start).cast()), 0);
    assert_eq!(driver.on_stream("cuStreamSynchronize", stream), 0);
    assert!(CALLED_AT.load(Ordering::SeqCst) >= 15_000);
}

#[test]
fn memory_is_counted_and_runs_out() {
    let driver = driver();
    let alloc = driver.call::<fn(*mut u64, usize) -> u32>("cuMemAlloc_v2");
    let info = driver.call::<fn(*mut usize, *mut usize) -> u32>("cuMemGetInfo_v2");
    let (mut at, mut none, mut before, mut after, mut total) = (0, 0, 0, 0, 0);
    assert_eq!(info(&raw mut before, &raw mut total), 0);
    assert_eq!(alloc(&raw mut at, 1 << 30), 0);
    assert_eq!(info(&raw mut after, &raw mut total), 0);
    assert_eq!((before - after, total), (1 << 30, 81_559 << 20));
    assert_eq!(alloc(&raw mut none, total), 2);
    let used = driver.node.lock().engine[0].memory_used;
    assert_eq!(used, (total - after) as u64);
    assert_eq!(driver.call::<fn(u64) -> u32>("cuMemFree_v2")(at), 0);
    assert_eq!(info(&raw mut after, &raw mut total), 0);
    assert_eq!(before, after);
}

#[test]
fn copies_take_their_time_and_pinned_ones_do_not_block() {
    let driver = driver();
    let stream = driver.stream();
    let bytes = 500_000_000;
    let (mut host, mut device) = (0_u64, 0_u64);
    let pinned = driver.call::<fn(*mut u64, usize, u32) -> u32>("cuMemHostAlloc");
    let copy = driver.call::<fn(u64, u64, usize, u64) -> u32>("cuMemcpyHtoDAsync_v2");
    assert_eq!(pinned(&raw mut host, bytes, 0), 0);
    assert_eq!(driver.call::<fn(*mut u64, usize) -> u32>("cuMemAlloc_v2")(&raw mut device, bytes), 0);
    let clock = Instant::now();
    assert_eq!(copy(device, host, bytes, stream), 0);
    assert!(clock.elapsed() < Duration::from_millis(8));
    assert_eq!(driver.on_stream("cuStreamSynchronize", stream), 0);
    assert!(clock.elapsed() >= Duration::from_millis(10), "50 GB/s");
    let pageable = vec![0_u8; 1 << 24];
    let clock = Instant::now();
    assert_eq!(copy(device, pageable.as_ptr().addr() as u64, pageable.len(), stream), 0);
    assert!(clock.elapsed() >= Duration::from_micros(1600), "10 GB/s, and blocking");
    assert_eq!(driver.call::<fn(u64) -> u32>("cuMemFreeHost")(host), 0);
}

#[test]
fn a_device_file_is_held_open_per_context_and_the_control_file_always() {
    driver();
    let open: Vec<PathBuf> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .collect();
    let held = |name: &str| open.iter().any(|path| path.ends_with(name));
    assert!(held("nvidiactl") && held("nvidia0"));
    assert!(!held("nvidia1"), "no context there");
}

#[test]
fn uuids_are_those_of_the_node() {
    let driver = driver();
    let mut uuid = [0_u8; 16];
    assert_eq!(driver.call::<fn(*mut [u8; 16], i32) -> u32>("cuDeviceGetUuid")(&raw mut uuid, 1), 0);
    let text = uuid.iter().fold(String::new(), |text, b| text + &format!("{b:02x}"));
    let guard = driver.node.lock();
    assert_eq!(guard.device[1].uuid.as_str().replace('-', ""), format!("GPU{text}"));
}
