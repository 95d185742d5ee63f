//! The maps of the kernel programs.

use std::collections::{BTreeMap, HashSet};
use std::io;

use aya::Pod;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use warpmeter_ebpf_common::{
    GapKey, GapSum, Handle, PAGE, PAGES, Process, Task, Use, UseKey, UuidKey, WakeKey, WakeSum,
    drop as drops, map, process,
};

use crate::meter::Reading;
use crate::programs::{LoadError, Programs, fd};
use crate::{sys, with_causes};

/// Threads of a page.
const PAGE_BYTES: u32 = 4096;
const _: () = assert!(PAGE_BYTES as usize == PAGE);

/// The flag that makes an entry only if there is none.
const NEW: u64 = 1;

/// The maps, as far as they are read and written here.
pub(crate) struct Tables {
    tracked: Array<MapData, [u8; PAGE]>,
    tasks: Map,
    processes: HashMap<MapData, u32, Process>,
    uses: Map,
    gaps: Map,
    contexts: Map,
    uuids: Map,
    wakes: Map,
    moment: Array<MapData, u64>,
    drops: PerCpuArray<MapData, u64>,
}

impl Tables {
    pub(crate) fn take(programs: &mut Programs) -> Result<Self, LoadError> {
        let refused = |error: aya::maps::MapError| LoadError::Refused(with_causes(&error));
        let mut take = |name| programs.take_map(name);
        Ok(Self {
            tracked: Array::try_from(take(map::TRACKED)?).map_err(refused)?,
            tasks: take(map::TASKS)?,
            processes: HashMap::try_from(take(map::PROCESSES)?).map_err(refused)?,
            uses: take(map::USES)?,
            gaps: take(map::GAPS)?,
            contexts: take(map::CONTEXTS)?,
            uuids: take(map::UUIDS)?,
            wakes: take(map::WAKES)?,
            moment: Array::try_from(take(map::MOMENT)?).map_err(refused)?,
            drops: PerCpuArray::try_from(take(map::DROPS)?).map_err(refused)?,
        })
    }

    /// Makes the switches of these threads count.
    pub(crate) fn track(&mut self, threads: &[u32]) -> Result<(), String> {
        let mut threads = threads.to_vec();
        threads.sort_unstable();
        let page_of = |thread: &u32| thread / PAGE_BYTES;
        for threads in threads.chunk_by(|one, other| page_of(one) == page_of(other)) {
            let Some(page) = threads.first().map(page_of).filter(|page| *page < PAGES) else { continue };
            let mut bytes = self.tracked.get(&page, 0).map_err(|error| with_causes(&error))?;
            let mut changed = false;
            for thread in threads {
                if let Some(byte) = bytes.get_mut((thread % PAGE_BYTES) as usize) {
                    changed |= *byte == 0;
                    *byte = 1;
                }
            }
            if changed {
                self.tracked.set(page, bytes, 0).map_err(|error| with_causes(&error))?;
            }
        }
        Ok(())
    }

    /// Notes what is known of a process beforehand; what the kernel knows of it already stays.
    pub(crate) fn mark(&mut self, tgid: u32, flags: u32) -> Result<(), String> {
        let blank = Process { flags, ..sys::zero() };
        match self.processes.insert(tgid, blank, NEW) {
            Ok(()) => Ok(()),
            // There is one: then only the flags change.
            Err(_) => match self.processes.get(&tgid, 0) {
                Ok(known) if known.flags & flags == flags => Ok(()),
                Ok(known) => self
                    .processes
                    .insert(tgid, Process { flags: known.flags | flags, ..known }, 0)
                    .map_err(|error| with_causes(&error)),
                Err(error) => Err(with_causes(&error)),
            },
        }
    }

    /// Lets a process be looked at again, as one that was there before the probes.
    pub(crate) fn heed(&mut self, tgid: u32) -> Result<(), String> {
        // One of which nothing is known has ended.
        let Ok(known) = self.processes.get(&tgid, 0) else { return Ok(()) };
        let flags = (known.flags & !process::IGNORED & !process::FROM_START) | process::LATE;
        self.processes.insert(tgid, Process { flags, ..known }, 0).map_err(|error| with_causes(&error))
    }

    /// Processes that have ended, and when.
    pub(crate) fn ended(&self) -> io::Result<BTreeMap<u32, u64>> {
        let mut ended = BTreeMap::new();
        for entry in &self.processes {
            let (tgid, record) = entry.map_err(|error| io::Error::other(with_causes(&error)))?;
            if record.ended != 0 {
                ended.insert(tgid, record.ended);
            }
        }
        Ok(ended)
    }

    /// The devices that processes use.
    pub(crate) fn used(&self) -> io::Result<Vec<UseKey>> {
        let mut keys = Vec::new();
        read::<UseKey, Use>(&self.uses, |key, _| keys.push(key))?;
        Ok(keys)
    }

    /// Says that a snapshot is of `at`: what goes on then is told as far as it is known.
    pub(crate) fn cut(&mut self, at: u64) -> io::Result<()> {
        self.moment.set(0, at, 0).map_err(|error| io::Error::other(with_causes(&error)))
    }

    /// Everything that sums are made of, as it is about `at`; `wakes`: whether wake-ups are followed.
    pub(crate) fn read(&self, at: u64, wakes: bool) -> io::Result<Reading> {
        let mut reading = Reading { at, wakes, ..Reading::default() };
        read::<WakeKey, WakeSum>(&self.wakes, |key, sum| reading.waits.push((key, sum)))?;
        read::<GapKey, GapSum>(&self.gaps, |key, sum| reading.gaps.push((key, sum)))?;
        read::<UseKey, Use>(&self.uses, |key, counted| reading.uses.push((key, counted)))?;
        read::<u32, Task>(&self.tasks, |key, task| reading.tasks.push((key, task)))?;
        for entry in &self.processes {
            reading.processes.push(entry.map_err(|error| io::Error::other(with_causes(&error)))?);
        }
        Ok(reading)
    }

    /// The identities of devices, as far as processes have asked for them.
    pub(crate) fn uuids(&self) -> io::Result<Vec<(UuidKey, [u8; 16])>> {
        let mut all = Vec::new();
        read::<UuidKey, [u8; 16]>(&self.uuids, |key, bytes| all.push((key, bytes)))?;
        Ok(all)
    }

    /// Removes all that is kept of processes that have ended.
    pub(crate) fn remove(&mut self, ended: &HashSet<u32>) -> io::Result<()> {
        remove::<GapKey, GapSum>(&mut self.gaps, |key| ended.contains(&key.tgid))?;
        remove::<UseKey, Use>(&mut self.uses, |key| ended.contains(&key.tgid))?;
        remove::<UuidKey, [u8; 16]>(&mut self.uuids, |key| ended.contains(&key.tgid))?;
        remove::<WakeKey, WakeSum>(&mut self.wakes, |key| {
            ended.contains(&key.sleeper) || ended.contains(&key.waker)
        })?;
        remove::<Handle, u32>(&mut self.contexts, |key| ended.contains(&key.tgid))?;
        for tgid in ended {
            // The kernel may have removed it.
            self.processes.remove(tgid).unwrap_or_default();
        }
        Ok(())
    }

    /// How much was left out since the start, by name; only what was. A return without its entry is none: probes of
    /// returns are attached first, so that calls that began before are such.
    pub(crate) fn drops(&self) -> Vec<(&'static str, u64)> {
        let counted = drops::NAMES
            .iter()
            .zip(0_u32..)
            .filter(|(_, at)| *at != drops::UNPAIRED)
            .map(|(name, at)| (*name, sum(&self.drops, at)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

fn sum(array: &PerCpuArray<MapData, u64>, at: u32) -> u64 {
    array.get(&at, 0).map_or(0, |values| values.iter().sum())
}

fn read<K: Pod, V: Pod>(map: &Map, mut each: impl FnMut(K, V)) -> io::Result<()> {
    let map = fd(map).ok_or_else(|| io::Error::other("a map is of another kind than it was"))?;
    sys::read_all(map, &mut each)
}

fn remove<K: Pod, V: Pod>(map: &mut Map, which: impl Fn(&K) -> bool) -> io::Result<()> {
    let mut keys = Vec::new();
    read::<K, V>(map, |key, _| {
        if which(&key) {
            keys.push(key);
        }
    })?;
    let mut map: HashMap<&mut MapData, K, V> =
        HashMap::try_from(map).map_err(|error| io::Error::other(with_causes(&error)))?;
    for key in keys {
        // The kernel may have removed it.
        map.remove(&key).unwrap_or_default();
    }
    Ok(())
}
