//! The library as a program uses it: opened by path, called through the published bindings.
#![allow(
    clippy::unwrap_used,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a failed step is a failed test"
)]

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t, nvmlProcessInfo_t,
    nvmlProcessUtilizationSample_t, nvmlUtilization_t,
};
use tempfile::TempDir;
use warpmeter_simgpu::kernel::Kernel;
use warpmeter_simgpu::{Fault, Node, Process, Scenario};

/// `SIMGPU_STATE` belongs to the process, so one test at a time.
static TURN: Mutex<()> = Mutex::new(());

struct Fixture {
    nvml: NvmlLib,
    node: Node,
    dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// An H100, an H100 with two MIG devices, and one under MPS.
const SCENARIO: &str = "
[[gpu]]
model = \"H100\"
counters = { process_period_ms = 50, util_period_ms = 50 }
[[gpu]]
model = \"H100\"
mig = [{ profile = \"3g.40gb\" }, { profile = \"1g.10gb\", gi = 9 }]
[[gpu]]
model = \"H100\"
mps = true
counters = { process_period_ms = 50 }
";

fn open() -> Fixture {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = TempDir::new().unwrap();
    warpmeter_simgpu::create(dir.path(), &Scenario::parse(SCENARIO).unwrap()).unwrap();
    // SAFETY: the tests of this file take turns, and nothing else here reads the environment.
    unsafe { std::env::set_var("SIMGPU_STATE", dir.path()) };
    let program = std::env::current_exe().unwrap();
    let path: PathBuf = program.parent().unwrap().join("libsimgpu_nvml.so");
    // SAFETY: the library's initialisers have no precondition.
    let nvml = unsafe { NvmlLib::new(path) }.unwrap();
    let node = Node::open(dir.path()).unwrap();
    // SAFETY: as published.
    assert_eq!(unsafe { nvml.nvmlInit_v2() }, 0);
    Fixture { nvml, node, dir, _turn: turn }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // SAFETY: as published; a test may have shut the library down itself, so any answer will do.
        unsafe { self.nvml.nvmlShutdown() };
    }
}

impl Fixture {
    fn device(&self, index: u32) -> nvmlDevice_t {
        let mut device = std::ptr::null_mut();
        // SAFETY: as published.
        assert_eq!(unsafe { self.nvml.nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) }, 0);
        device
    }

    fn fault(&self, words: &[&str]) {
        let fault = Fault::from_words(words.iter().copied()).unwrap();
        warpmeter_simgpu::inject(self.dir.path(), &fault).unwrap();
    }

    /// Keeps an engine busy for `ms` with kernels of half the SMs, in the name of this process, and waits.
    fn work(&self, engine: usize, ms: u64) {
        let mut guard = self.node.lock();
        let now = guard.now;
        let client = guard.attach(engine, Process::current(), now).unwrap();
        let stream = guard.open_stream(client, 1, false, true).unwrap();
        let seq = guard
            .enqueue(stream, Kernel::named(&format!("us={},sm=50,occ=50", ms * 1000)).op(), now)
            .unwrap();
        drop(guard);
        warpmeter_simgpu::wait::wait_until(&self.node, true, |s, now| s.due(stream, seq, now));
    }

    fn sample(&self, device: nvmlDevice_t, instance: Option<u32>) -> nvmlGpmSample_t {
        let mut sample = std::ptr::null_mut();
        // SAFETY: as published.
        unsafe {
            assert_eq!(self.nvml.nvmlGpmSampleAlloc(&raw mut sample), 0);
            let code = match instance {
                Some(instance) => self.nvml.nvmlGpmMigSampleGet(device, instance, sample),
                None => self.nvml.nvmlGpmSampleGet(device, sample),
            };
            assert_eq!(code, 0);
        }
        sample
    }

    /// Metrics 1, 2 and 3 between two samples.
    fn metrics(&self, a: nvmlGpmSample_t, b: nvmlGpmSample_t) -> [(u32, f64); 3] {
        // SAFETY: zeroes are valid for this struct of integers, doubles and pointers.
        let mut request: nvmlGpmMetricsGet_t = unsafe { std::mem::zeroed() };
        (request.version, request.numMetrics, request.sample1, request.sample2) = (1, 3, a, b);
        for (metric, id) in request.metrics.iter_mut().zip([1, 2, 3, 5]) {
            metric.metricId = id;
            metric.value = -1.0;
        }
        // SAFETY: as published.
        assert_eq!(unsafe { self.nvml.nvmlGpmMetricsGet(&raw mut request) }, 0);
        assert!((request.metrics[3].value + 1.0).abs() < 1e-9, "beyond numMetrics nothing is written");
        [0, 1, 2].map(|at| (request.metrics[at].nvmlReturn, request.metrics[at].value))
    }
}

#[test]
fn gpm_of_a_mig_instance_shows_that_instance_alone() {
    let f = open();
    let device = f.device(1);
    let idle = f.sample(device, Some(9));
    let before = f.sample(device, Some(1));
    f.work(1, 400);
    std::thread::sleep(std::time::Duration::from_millis(120));
    let [active, sm, occupancy] = f.metrics(before, f.sample(device, Some(1)));
    assert!(active.1 > 40.0 && active.1 <= 100.0, "{active:?}");
    assert!((sm.1 * 2.0 - active.1).abs() < 0.1 && (occupancy.1 * 4.0 - active.1).abs() < 0.1);
    assert!(f.metrics(idle, f.sample(device, Some(9)))[0].1.abs() < 1e-9);
}

#[test]
fn gpm_samples_of_one_refresh_give_no_number() {
    let f = open();
    let a = f.sample(f.device(0), None);
    assert!(f.metrics(a, a)[0].1.is_nan());
}

#[test]
fn gpm_faults_touch_what_they_name() {
    let f = open();
    let device = f.device(0);
    let before = f.sample(device, None);
    f.work(0, 250);
    f.fault(&["kind=gpm_metric_error", "metric=2"]);
    let after = f.sample(device, None);
    let [active, sm, _] = f.metrics(before, after);
    assert!(active.0 == 0 && active.1 > 10.0 && sm.0 != 0);
    f.fault(&["kind=stuck_zero"]);
    let stuck = f.sample(device, None);
    assert!(f.metrics(stuck, stuck)[1].0 != 0);
    let mut support = nvmlGpmSupport_t { version: 1, isSupportedDevice: 0 };
    // SAFETY: as published.
    assert_eq!(unsafe { f.nvml.nvmlGpmQueryDeviceSupport(device, &raw mut support) }, 0);
    assert_eq!(support.isSupportedDevice, 1);
}

#[test]
fn process_utilisation_is_not_found_before_any_and_asks_for_room() {
    let f = open();
    let device = f.device(0);
    let mut count = 0;
    // SAFETY: as published.
    let ask = |count: &mut u32, out: *mut nvmlProcessUtilizationSample_t| unsafe {
        f.nvml.nvmlDeviceGetProcessUtilization(device, out, count, 0)
    };
    assert_eq!(ask(&mut count, std::ptr::null_mut()), 6, "NOT_FOUND");
    f.work(0, 250);
    assert_eq!(ask(&mut count, std::ptr::null_mut()), 7, "INSUFFICIENT_SIZE");
    // SAFETY: zeroes are valid for this struct of integers.
    let mut samples: Vec<nvmlProcessUtilizationSample_t> =
        vec![unsafe { std::mem::zeroed() }; count as usize];
    assert_eq!(ask(&mut count, samples.as_mut_ptr()), 0);
    samples.truncate(count as usize);
    assert!(samples.len() >= 3);
    assert!(samples.iter().all(|s| s.pid == std::process::id() && s.smUtil <= 100));
    assert!(samples.iter().any(|s| s.smUtil == 100));
    assert!(samples.is_sorted_by_key(|s| s.timeStamp));
}

#[test]
fn process_lists_follow_the_size_then_fill_protocol() {
    let f = open();
    f.work(2, 1);
    let device = f.device(1);
    let mut count = 0;
    // SAFETY: as published; zeroes are valid for this struct of integers.
    unsafe {
        let code =
            f.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, std::ptr::null_mut());
        assert_eq!((code, count), (7, 1));
        let mut info: nvmlProcessInfo_t = std::mem::zeroed();
        let code = f.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, &raw mut info);
        assert_eq!((code, count), (0, 1));
        assert_eq!((info.pid, info.gpuInstanceId, info.computeInstanceId), (std::process::id(), 9, 0));
    }
}

#[test]
fn an_mps_server_is_in_the_compute_list_and_has_the_samples_of_all_and_its_clients_are_in_the_mps_list() {
    let f = open();
    let program = f.dir.path().join("nvidia-cuda-mps-server");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut server = std::process::Command::new(&program).arg("60").spawn().unwrap();
    let mut guard = f.node.lock();
    let now = guard.now;
    guard.attach(3, Process::of(server.id()), now).unwrap();
    drop(guard);
    f.work(3, 250);
    let device = f.device(2);
    // SAFETY: zeroes are valid for this struct of integers.
    let mut infos: [nvmlProcessInfo_t; 4] = unsafe { std::mem::zeroed() };
    let mut count = 4;
    // SAFETY: as published.
    let code =
        unsafe { f.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, infos.as_mut_ptr()) };
    assert_eq!((code, count, infos[0].pid), (0, 1, server.id()));
    count = 4;
    // SAFETY: as published.
    let code = unsafe {
        f.nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(device, &raw mut count, infos.as_mut_ptr())
    };
    assert_eq!((code, count, infos[0].pid), (0, 1, std::process::id()));
    // SAFETY: zeroes are valid for this struct of integers.
    let mut samples: Vec<nvmlProcessUtilizationSample_t> = vec![unsafe { std::mem::zeroed() }; 1000];
    count = 1000;
    // SAFETY: as published.
    let code =
        unsafe { f.nvml.nvmlDeviceGetProcessUtilization(device, samples.as_mut_ptr(), &raw mut count, 0) };
    samples.truncate(count as usize);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(code, 0);
    assert!(samples.iter().all(|s| s.pid == server.id()), "nothing is said of a client");
    assert!(samples.iter().any(|s| s.smUtil == 100));
}

#[test]
fn a_node_made_anew_is_found_by_the_next_initialisation() {
    let f = open();
    let scenario = Scenario::parse("[[gpu]]\nmodel = \"T4\"\ncount = 5").unwrap();
    warpmeter_simgpu::create(f.dir.path(), &scenario).unwrap();
    let mut count = 0;
    // SAFETY: as published.
    unsafe {
        assert_eq!((f.nvml.nvmlDeviceGetCount_v2(&raw mut count), count), (0, 3));
        f.nvml.nvmlShutdown();
        assert_eq!(f.nvml.nvmlDeviceGetCount_v2(&raw mut count), 1, "UNINITIALIZED");
        assert_eq!(f.nvml.nvmlInit_v2(), 0);
        assert_eq!((f.nvml.nvmlDeviceGetCount_v2(&raw mut count), count), (0, 5));
    }
}

#[test]
fn handles_of_before_a_reload_are_dead() {
    let f = open();
    let old = f.device(0);
    let mut rates = nvmlUtilization_t { gpu: 7, memory: 7 };
    f.fault(&["kind=reload"]);
    // SAFETY: as published.
    unsafe {
        assert_eq!(f.nvml.nvmlDeviceGetUtilizationRates(old, &raw mut rates), 1, "UNINITIALIZED");
        assert_eq!(f.nvml.nvmlInit_v2(), 0);
        assert_eq!(f.nvml.nvmlDeviceGetUtilizationRates(old, &raw mut rates), 2, "INVALID_ARGUMENT");
        assert_eq!(f.nvml.nvmlDeviceGetUtilizationRates(f.device(0), &raw mut rates), 0);
    }
}

#[test]
fn nonsense_is_refused_without_harm() {
    let f = open();
    let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
    // SAFETY: as published; the handle is never followed.
    unsafe {
        assert_eq!(f.nvml.nvmlDeviceGetUtilizationRates(std::ptr::null_mut(), &raw mut rates), 2);
        assert_eq!(f.nvml.nvmlDeviceGetUtilizationRates(f.device(0), std::ptr::null_mut()), 2);
        let wild = std::ptr::without_provenance_mut(0xdead_beef);
        assert_eq!(f.nvml.nvmlDeviceGetUtilizationRates(wild, &raw mut rates), 2);
    }
}
