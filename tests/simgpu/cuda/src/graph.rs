//! Graphs, by stream capture: a graph is the list of operations that the captured streams were given, run in that
//! order in the stream that it is launched into.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use warpmeter_simgpu::layout::{Op, kind};

use crate::abi::{Answer, CuResult, INVALID_HANDLE, INVALID_VALUE, code, get, put};
use crate::context::current;
use crate::stream;
use crate::{launch, runtime};

/// Marks our graph handles.
const HANDLE: u64 = 0x5900_0000_0000;

/// A capture in progress.
struct Capture {
    /// Stream that began it, then those that joined.
    streams: Vec<u64>,
    /// Events recorded in it.
    events: Vec<u32>,
    ops: Vec<Op>,
}

struct Graphs {
    captures: Vec<Capture>,
    /// Graphs and executable graphs, by number.
    made: BTreeMap<u64, Arc<Vec<Op>>>,
    last: u64,
}

static GRAPHS: Mutex<Graphs> = Mutex::new(Graphs { captures: Vec::new(), made: BTreeMap::new(), last: 0 });
/// Captures in progress: launches look no further while it is 0.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

fn graphs() -> std::sync::MutexGuard<'static, Graphs> {
    GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a stream is being captured.
pub(crate) fn capturing(stream: u64) -> bool {
    CAPTURES.load(Ordering::Relaxed) > 0 && graphs().captures.iter().any(|c| c.streams.contains(&stream))
}

/// Takes an operation for the graph that captures a stream, if one does.
pub(crate) fn captured(stream: u64, op: Op) -> Result<bool, CuResult> {
    if CAPTURES.load(Ordering::Relaxed) == 0 {
        return Ok(false);
    }
    let mut graphs = graphs();
    let Some(capture) = graphs.captures.iter_mut().find(|c| c.streams.contains(&stream)) else {
        return Ok(false);
    };
    if op.kind == kind::HOST {
        return Err(crate::abi::CAPTURE_UNSUPPORTED);
    }
    capture.ops.push(op);
    Ok(true)
}

/// Takes an event's record, if the stream is captured.
pub(crate) fn event_recorded(stream: u64, event: u32) -> bool {
    if CAPTURES.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut graphs = graphs();
    let capture = graphs.captures.iter_mut().find(|c| c.streams.contains(&stream));
    capture.map(|c| c.events.push(event)).is_some()
}

/// Lets a stream join the capture in which an event was recorded.
pub(crate) fn event_joins(stream: u64, event: u32) -> bool {
    if CAPTURES.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut graphs = graphs();
    let Some(capture) = graphs.captures.iter_mut().find(|c| c.events.contains(&event)) else { return false };
    if !capture.streams.contains(&stream) {
        capture.streams.push(stream);
    }
    true
}

fn add(graphs: &mut Graphs, ops: Arc<Vec<Op>>) -> u64 {
    graphs.last += 1;
    let number = graphs.last;
    graphs.made.insert(number, ops);
    HANDLE | number << 4
}

fn find(graphs: &Graphs, handle: u64) -> Result<Arc<Vec<Op>>, CuResult> {
    graphs.made.get(&((handle & !HANDLE) >> 4)).cloned().ok_or(INVALID_HANDLE)
}

pub(crate) extern "C" fn begin_capture(stream: u64, _mode: u32) -> CuResult {
    code(current().and_then(|_| {
        if stream == 0 || capturing(stream) {
            return Err(INVALID_VALUE);
        }
        graphs().captures.push(Capture { streams: vec![stream], events: Vec::new(), ops: Vec::new() });
        CAPTURES.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }))
}

pub(crate) extern "C" fn end_capture(stream: u64, out: *mut u64) -> CuResult {
    let mut graphs = graphs();
    let at = graphs.captures.iter().position(|c| c.streams.first() == Some(&stream));
    let Some(at) = at else { return INVALID_VALUE };
    let capture = graphs.captures.remove(at);
    CAPTURES.fetch_sub(1, Ordering::Relaxed);
    let handle = add(&mut graphs, Arc::new(capture.ops));
    code(put(out, handle))
}

pub(crate) extern "C" fn is_capturing(stream: u64, status: *mut u32) -> CuResult {
    code(put(status, u32::from(capturing(stream))))
}

pub(crate) extern "C" fn create(out: *mut u64, _flags: u32) -> CuResult {
    code(put(out, add(&mut graphs(), Arc::default())))
}

fn instance(out: *mut u64, graph: u64) -> Answer {
    let mut graphs = graphs();
    let ops = find(&graphs, graph)?;
    put(out, add(&mut graphs, ops))
}

pub(crate) extern "C" fn instantiate_v2(
    out: *mut u64,
    graph: u64,
    _node: *mut c_void,
    _log: *mut c_void,
    _size: usize,
) -> CuResult {
    code(instance(out, graph))
}

pub(crate) extern "C" fn instantiate_with_flags(out: *mut u64, graph: u64, _flags: u64) -> CuResult {
    code(instance(out, graph))
}

pub(crate) extern "C" fn instantiate_with_params(
    out: *mut u64,
    graph: u64,
    _params: *mut c_void,
) -> CuResult {
    code(instance(out, graph))
}

pub(crate) extern "C" fn nodes(graph: u64, _nodes: *mut u64, count: *mut usize) -> CuResult {
    code(find(&graphs(), graph).and_then(|ops| get(count).and_then(|_| put(count, ops.len()))))
}

pub(crate) extern "C" fn destroy(graph: u64) -> CuResult {
    match graphs().made.remove(&((graph & !HANDLE) >> 4)) {
        Some(_) => 0,
        None => INVALID_HANDLE,
    }
}

pub(crate) extern "C" fn upload(_graph: u64, _stream: u64) -> CuResult {
    code(runtime::runtime().map(drop))
}

fn run(graph: u64, handle: u64) -> Answer {
    let ops = find(&graphs(), graph)?;
    let ctx = current()?;
    let stream = stream::resolve(&ctx, handle)?;
    ops.iter().try_for_each(|op| launch::enqueue(&ctx, stream, *op).map(drop))
}

pub(crate) extern "C" fn launch(graph: u64, stream: u64) -> CuResult {
    code(run(graph, stream))
}

pub(crate) extern "C" fn launch_ptsz(graph: u64, stream: u64) -> CuResult {
    code(run(graph, stream::per_thread(stream)))
}
