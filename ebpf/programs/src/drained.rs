//! Which streams may have work outstanding: DRAINED gaps need to know that none has.
//!
//! Every enqueue takes a number of its device's. A stream remembers the last one it got and whether that may be
//! outstanding; the device counts such streams. Both change by atomic operations that either see the state they
//! were made for or do nothing, so a thread that enqueues while another waits can only make a device look busy for
//! longer, never drained too early.

use warpmeter_ebpf_common::{
    BUSY_BITS, BUSY_BLOCKING, BUSY_OTHER, PER_THREAD, Stream, StreamKey, Use, drop, scope, uses,
};

use crate::atomic;
use crate::maps::{STREAMS, dropped};

const NO_STREAM: Stream =
    Stream { state: 0, capture: 0, origin: 0, waits_stream: 0, waits_seq: 0, blocking: 0, reserved: 0 };

/// A stream's record, made if there is none.
#[inline(always)]
pub fn stream_of(key: &StreamKey) -> Option<*mut Stream> {
    if let Some(stream) = STREAMS.get_ptr_mut(key) {
        return Some(stream);
    }
    let default = key.stream == 0 || key.stream & PER_THREAD != 0;
    let _ = STREAMS.insert(key, &Stream { blocking: u32::from(default), ..NO_STREAM }, 1);
    let stream = STREAMS.get_ptr_mut(key);
    if stream.is_none() {
        dropped(drop::STREAMS);
    }
    stream
}

/// Whether what is enqueued in a stream is recorded instead of run.
#[inline(always)]
pub fn is_captured(key: &StreamKey, stream: *mut Stream) -> bool {
    // SAFETY: a value of the map.
    let stream = unsafe { &mut *stream };
    if stream.capture == 0 {
        return false;
    }
    if stream.origin == key.stream || is_capture(key, stream.origin, stream.capture) {
        return true;
    }
    stream.capture = 0;
    false
}

/// Whether a capture that began in `origin` goes on.
#[inline(always)]
pub fn is_capture(key: &StreamKey, origin: u64, capture: u64) -> bool {
    // A default stream of another context cannot be captured: the key's own context does.
    let default = origin == 0 || origin & PER_THREAD != 0;
    let key = StreamKey { stream: origin, context: if default { key.context } else { 0 }, ..*key };
    STREAMS.get_ptr(&key).is_some_and(|origin| {
        // SAFETY: a value of the map.
        unsafe { (*origin).capture == capture }
    })
}

/// Something was enqueued.
#[inline(always)]
pub fn enqueued(using: *mut Use, stream: *mut Stream) {
    // SAFETY: values of maps; their words change by atomic operations.
    let (outstanding, state, blocking, complete) = unsafe {
        let blocking = (*stream).blocking != 0;
        let complete =
            if blocking { &raw const (*using).complete_blocking } else { &raw const (*using).complete };
        (&raw mut (*using).outstanding, &raw mut (*stream).state, blocking, complete)
    };
    let seq = (atomic::fetch_add(outstanding, 1 << BUSY_BITS) >> BUSY_BITS) + 1;
    let old = atomic::swap(state, seq << 1 | 1);
    if old & 1 == 0 || old >> 1 <= atomic::read(complete) {
        atomic::add(outstanding, if blocking { BUSY_BLOCKING } else { BUSY_OTHER });
    }
}

/// The number of a stream's last enqueue.
#[inline(always)]
pub fn stream_seq(stream: *const Stream) -> u64 {
    // SAFETY: a value of the map.
    atomic::read(unsafe { &raw const (*stream).state }) >> 1
}

/// The number of the device's last enqueue.
#[inline(always)]
pub fn device_seq(using: *const Use) -> u64 {
    // SAFETY: a value of the map.
    atomic::read(unsafe { &raw const (*using).outstanding }) >> BUSY_BITS
}

/// What a call proved: everything in its scope that was enqueued up to these numbers is complete.
pub struct Proof {
    pub scope: u32,
    pub key: StreamKey,
    pub stream_seq: u64,
    pub device_seq: u64,
}

/// Takes note of it.
#[inline(always)]
pub fn proved(using: *mut Use, proof: &Proof) {
    match proof.scope {
        scope::NONE => return,
        scope::STREAM => {}
        scope => {
            if all_complete(using, proof) || scope == scope::CONTEXT {
                return;
            }
        }
    }
    let Some(stream) = STREAMS.get_ptr_mut(&proof.key) else { return };
    stream_complete(using, stream, proof.stream_seq);
    // SAFETY: a value of the map.
    let (waits_stream, waits_seq) = unsafe { ((*stream).waits_stream, (*stream).waits_seq) };
    if waits_seq != 0 {
        // The work of another that it was last made to wait for is complete too.
        let key = StreamKey { stream: waits_stream, context: 0, ..proof.key };
        if let Some(other) = STREAMS.get_ptr_mut(&key) {
            stream_complete(using, other, waits_seq);
        }
    }
}

/// Everything in the scope is complete, if nothing was enqueued meanwhile; whether that was so.
#[inline(always)]
fn all_complete(using: *mut Use, proof: &Proof) -> bool {
    // SAFETY: a value of the map.
    let (outstanding, complete, complete_blocking, contexts) = unsafe {
        (
            &raw mut (*using).outstanding,
            &raw mut (*using).complete,
            &raw mut (*using).complete_blocking,
            (*using).contexts,
        )
    };
    let old = atomic::read(outstanding);
    // One context's synchronisation says nothing of another's streams on the same device.
    if contexts > 1 || old >> BUSY_BITS != proof.device_seq {
        return false;
    }
    let others = old & ((1 << BUSY_BITS) - 1) & !(BUSY_OTHER - 1);
    let everything = proof.scope == scope::CONTEXT;
    // Before the count falls: an enqueue in between may then count its stream twice, never not at all.
    atomic::write(complete_blocking, proof.device_seq);
    if everything {
        atomic::write(complete, proof.device_seq);
    }
    let left = proof.device_seq << BUSY_BITS | if everything { 0 } else { others };
    if atomic::replace(outstanding, old, left) && everything {
        // SAFETY: as above; the only bit that is ever set.
        unsafe { (*using).flags |= uses::KNOWN };
    }
    true
}

#[inline(always)]
fn stream_complete(using: *mut Use, stream: *mut Stream, seq: u64) {
    // SAFETY: values of maps.
    let (outstanding, complete, state, blocking) = unsafe {
        let blocking = (*stream).blocking != 0;
        let complete =
            if blocking { &raw const (*using).complete_blocking } else { &raw const (*using).complete };
        (&raw mut (*using).outstanding, complete, &raw mut (*stream).state, blocking)
    };
    if seq > atomic::read(complete) && atomic::replace(state, seq << 1 | 1, seq << 1) {
        let one = if blocking { BUSY_BLOCKING } else { BUSY_OTHER };
        atomic::add(outstanding, one.wrapping_neg());
    }
}

/// Whether nothing of the process's is outstanding on the device, for sure.
#[inline(always)]
pub fn is_drained(using: *const Use) -> bool {
    // SAFETY: a value of the map.
    let (outstanding, flags) = unsafe { (atomic::read(&raw const (*using).outstanding), (*using).flags) };
    flags & uses::KNOWN != 0 && outstanding & ((1 << BUSY_BITS) - 1) == 0
}
