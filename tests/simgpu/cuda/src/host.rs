//! Host functions: called by a thread of their own when the stream reaches them.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use warpmeter_simgpu::layout::Op;

use crate::abi::{Answer, CuResult, INVALID_VALUE, code};
use crate::launch::submit;
use crate::runtime::{Runtime, runtime};
use crate::stream;

type Function = extern "C" fn(*mut c_void);

/// A function and its argument, as an address: the program promises that it may be used from any thread.
type Call = (Function, usize);

static WAITING: Mutex<BTreeMap<u64, Call>> = Mutex::new(BTreeMap::new());
static LAST: AtomicU64 = AtomicU64::new(0);
static STARTED: Once = Once::new();
static SERVER: OnceLock<Thread> = OnceLock::new();

/// The operation that calls a function, made known to the serving thread.
fn register(function: Option<Function>, data: *mut c_void) -> Result<Op, CuResult> {
    let function = function.ok_or(INVALID_VALUE)?;
    let rt = runtime()?;
    let token = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    waiting().insert(token, (function, data.expose_provenance()));
    STARTED.call_once(|| {
        let serve = move || serve(rt);
        if let Ok(thread) = std::thread::Builder::new().name("cuda-host-func".to_owned()).spawn(serve) {
            // The cell is empty: this closure runs once.
            drop(SERVER.set(thread.thread().clone()));
        }
    });
    Ok(Op::host(token))
}

fn waiting() -> std::sync::MutexGuard<'static, BTreeMap<u64, Call>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(rt: &'static Runtime) {
    loop {
        if waiting().is_empty() {
            std::thread::park_timeout(Duration::from_secs(1));
            continue;
        }
        let due = {
            let mut guard = rt.node.lock();
            let now = guard.now;
            for seen in &rt.visible {
                guard.advance(seen.engine, now);
            }
            guard.due_host_functions(rt.process.pid)
        };
        if due.is_empty() {
            std::thread::sleep(Duration::from_micros(100));
        }
        for (stream, token) in due {
            let call = waiting().remove(&token);
            if let Some((function, data)) = call {
                function(std::ptr::with_exposed_provenance_mut(data));
            }
            rt.node.lock().host_function_done(stream, token);
        }
    }
}

fn launch(handle: u64, function: Option<Function>, data: *mut c_void) -> Answer {
    submit(handle, register(function, data)?)?;
    if let Some(thread) = SERVER.get() {
        thread.unpark();
    }
    Ok(())
}

pub(crate) extern "C" fn launch_host(stream: u64, function: Option<Function>, data: *mut c_void) -> CuResult {
    code(launch(stream, function, data))
}

pub(crate) extern "C" fn launch_host_ptsz(
    stream: u64,
    function: Option<Function>,
    data: *mut c_void,
) -> CuResult {
    code(launch(stream::per_thread(stream), function, data))
}
