//! What the driver and the probes report.

use warpmeter_core::fact::{
    Board, DeviceRef, Fact, Holder, Level, Part, ProcessSample, ProcessUse, Reading, Source,
};
use warpmeter_core::identity::{GpuId, HostPid, ProcessId};
use warpmeter_core::probe::{Asked, Calls, Probes, User};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::time::{Interval, MonoNs};
use warpmeter_simgpu::Guard;

use super::Recorder;
use super::names::SERVER;
use crate::case::{Sharing, Watch};
use crate::{MS, SECOND};

impl Recorder<'_> {
    /// The driver's readings of the second that ends now.
    pub(super) fn read(&mut self, guard: &mut Guard<'_>, now: u64) {
        guard.advance_all(self.epoch + now);
        let during = Interval::new(MonoNs(Self::at(now - SECOND)), MonoNs(Self::at(now))).unwrap();
        for gpu in 0..usize::try_from(self.case.gpus).unwrap() {
            let mut parts = Vec::new();
            for device in (0..self.devices.len()).filter(|device| self.gpus[*device] == gpu) {
                let engine = &guard.engine[device];
                let active = engine.totals.active - self.last[device].active;
                let sm = engine.totals.sm / 1000 - self.last[device].sm / 1000;
                self.last[device] = engine.totals;
                let mut pids: Vec<u32> =
                    engine.listed().iter().map(|client| guard.client[*client as usize].pid).collect();
                if self.case.sharing == Sharing::Mps {
                    pids = vec![SERVER];
                }
                pids.sort_unstable();
                let cycles = |active| Some(Level::Cycles { active, elapsed: SECOND });
                let holder = |pid| Holder { pid: HostPid(pid), memory: None };
                parts.push(Part {
                    mig: self.devices[device].0.mig.clone(),
                    engine: cycles(active),
                    sm_active: cycles(sm),
                    processes: Some(pids.into_iter().map(holder).collect()),
                    ..Part::default()
                });
            }
            let board = Board { energy_mj: Some(guard.energy_mj(gpu)), ..Board::default() };
            let id = GpuId::new(guard.device[gpu].uuid.as_str());
            let reading = Reading { gpu: id.clone(), during, board, parts };
            self.tell(now + MS, Source::Nvidia, Fact::Reading(Box::new(reading)));
            if self.case.sharing == Sharing::Turns {
                self.tell_processes(guard, gpu, id, now);
            }
        }
    }

    /// What the driver says of processes: not under MPS, not in MIG mode.
    fn tell_processes(&mut self, guard: &Guard<'_>, gpu: usize, id: GpuId, now: u64) {
        let visible = guard.device[gpu].visible(self.epoch + now);
        let fresh = visible.filter(|sample| sample.at > self.told[gpu]);
        let samples: Vec<ProcessSample> = fresh
            .map(|sample| {
                let end = Self::at(sample.at - self.epoch);
                let start = end - u64::from(sample.period_ms) * MS;
                ProcessSample {
                    pid: HostPid(sample.pid),
                    during: Interval::new(MonoNs(start), MonoNs(end)).unwrap(),
                    sm: Ppb::percent(sample.sm).unwrap(),
                }
            })
            .collect();
        self.told[gpu] = self.epoch + now;
        let used = ProcessUse { gpu: id, until: MonoNs(Self::at(now)), samples };
        self.tell(now + MS, Source::Nvidia, Fact::ProcessUse(used));
    }

    /// What the probes saw since the last snapshot.
    pub(super) fn snapshot(&mut self, now: u64) {
        let begin = now.saturating_sub(SECOND);
        let during = Interval::new(MonoNs(Self::at(begin)), MonoNs(Self::at(now))).unwrap();
        let ids: Vec<ProcessId> = (0..self.case.processes.len()).map(|process| self.id(process)).collect();
        let (mut calls, mut users) = (Vec::new(), Vec::new());
        for worker in &mut self.workers {
            let until = worker.program.dies.map_or(now, |dies| dies.min(now));
            if worker.program.begins > now || until < begin {
                continue;
            }
            let (launches, gaps) = worker.gaps.snapshot(until);
            let device = &self.devices[worker.device].0;
            let seen = Calls {
                process: ids[worker.process],
                device: Some(
                    device.mig.clone().map_or_else(|| DeviceRef::Gpu(device.gpu.clone()), DeviceRef::Mig),
                ),
                from_start: true,
                shed: false,
                enqueued: worker.gaps.enqueued,
                last_call: worker.gaps.last_call.map(|at| MonoNs(Self::at(at))),
                asked: Asked { launches, ..Asked::default() },
                gaps,
            };
            let asked = Asked::default();
            match self.case.processes[worker.process].watch {
                Watch::Watched => calls.push(seen),
                Watch::Unwatched => calls.push(Calls {
                    from_start: false,
                    enqueued: 1,
                    last_call: None,
                    asked,
                    gaps: Vec::new(),
                    ..seen
                }),
                Watch::Refused => {
                    users.push(User { process: seen.process, device: seen.device, watched: false });
                }
            }
        }
        calls.sort();
        users.sort();
        let probes = Probes { calls, users, followed: true, ..Probes::of_nothing(during) };
        self.tell(now + MS, Source::Probes, Fact::Probes(Box::new(probes)));
    }
}
