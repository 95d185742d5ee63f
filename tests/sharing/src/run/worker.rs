//! The programs: what each calls next, and when.

use warpmeter_core::fact::{Fact, Source};
use warpmeter_simgpu::kernel::Kernel;
use warpmeter_simgpu::layout::Load;
use warpmeter_simgpu::{Guard, StreamRef};

use super::Recorder;
use super::names::pid;
use crate::case::Case;
use crate::probes::Gaps;
use crate::program::Program;
use crate::{MS, US};

/// A synchronising call looks so often at most.
const LOOK: u64 = 20 * US;
/// From one launch to the next.
const LAUNCH: u64 = 5 * US;

/// One program of one process on one device.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) process: usize,
    pub(super) pid: u32,
    pub(super) device: usize,
    pub(super) program: Program,
    stream: Option<StreamRef>,
    pub(super) gaps: Gaps,
    /// Kernels of the step that are still to be launched; none while it waits for them.
    left: Option<u32>,
    last: u64,
    random: u64,
    over: bool,
    pub(super) launched: Vec<(u64, u64)>,
}

impl Worker {
    /// Those of a case, in order of process and device.
    pub(super) fn all(case: &Case) -> Vec<Self> {
        let mut workers = Vec::new();
        for (process, described) in case.processes.iter().enumerate() {
            for (device, program) in &described.programs {
                workers.push(Self {
                    process,
                    pid: pid(process),
                    device: *device,
                    program: *program,
                    stream: None,
                    gaps: Gaps::default(),
                    left: Some(program.kernels),
                    last: 0,
                    random: 0x9e37_79b9 + workers.len() as u64 * 7919,
                    over: false,
                    launched: Vec::new(),
                });
            }
        }
        workers
    }

    /// Ends a step; when the next begins.
    fn pause(&mut self, now: u64) -> u64 {
        self.left = Some(self.program.kernels);
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = (self.random >> 33) % (self.program.pause + 1);
        now + (self.program.pause / 2 + drawn).max(LAUNCH)
    }
}

impl Recorder<'_> {
    /// Lets a program make its next call; when it makes the one after.
    pub(super) fn step(&mut self, guard: &mut Guard<'_>, number: usize, now: u64) -> Option<u64> {
        let epoch = self.epoch;
        let worker = &mut self.workers[number];
        if worker.over {
            return None;
        }
        if worker.program.dies.is_some_and(|dies| now >= dies) {
            worker.over = true;
            let (process, pid) = (worker.process, worker.pid);
            guard.advance_all(epoch + now);
            guard.remove_process(warpmeter_simgpu::Process { pid, start: 1 });
            self.tell(now + 50 * MS, Source::Host, Fact::Gone(self.id(process)));
            return None;
        }
        let stream = if let Some(stream) = worker.stream {
            stream
        } else {
            let process = warpmeter_simgpu::Process { pid: worker.pid, start: 1 };
            let client = guard.attach(worker.device, process, epoch + now).unwrap();
            *worker.stream.insert(guard.open_stream(client, 1, false, true).unwrap())
        };
        if worker.program.kernels == 0 {
            return None;
        }
        let awake = worker.program.awake(now);
        match worker.left {
            Some(0) if worker.program.waits => {
                worker.left = None;
                worker.gaps.sync();
                Some(now + LAUNCH)
            }
            Some(0) => Some(worker.pause(now)),
            Some(_) if worker.left == Some(worker.program.kernels) && awake > now => Some(awake),
            Some(left) => {
                let load = Load { sm: worker.program.sm, occupancy: 500, dram: 100, tensor: 0 };
                let op = Kernel { nanos: worker.program.kernel, load }.op();
                match guard.enqueue(stream, op, epoch + now) {
                    Ok(seq) => {
                        worker.last = seq;
                        worker.gaps.launch(now);
                        worker.launched.push((now, worker.program.kernel));
                        worker.left = Some(left - 1);
                        Some(now + LAUNCH)
                    }
                    Err(_) => Some(now + LOOK),
                }
            }
            None => {
                if let Some(left) = guard.due(stream, worker.last, epoch + now) {
                    return Some(now + left.max(LOOK));
                }
                worker.gaps.drained(now);
                Some(worker.pause(now))
            }
        }
    }
}
