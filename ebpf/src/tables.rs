//! The maps of the kernel programs.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::atomic::Ordering;

use aya::Pod;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use warpmeter_ebpf_common::{
    GapKey, GapSum, Handle, PAGE, PAGES, Process, Task, Use, UseKey, UuidKey, WakeKey, WakeSum,
    drop as drops, map,
};

use crate::meter::Reading;
use crate::programs::{LoadError, Programs, fd};
use crate::sys::{self, Bytes};
use crate::with_causes;

/// The maps, as far as they are read and written here.
pub(crate) struct Tables {
    tracked: Bytes,
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
        let tracked = take(map::TRACKED)?;
        // The mapping keeps the map.
        let tracked = match fd(&tracked) {
            Some(map) => Bytes::map(map, PAGE * PAGES as usize),
            None => Err(io::Error::other("it is of another kind than it was")),
        };
        Ok(Self {
            tracked: tracked.map_err(|error| LoadError::Refused(format!("map {}: {error}", map::TRACKED)))?,
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

    /// Makes the switches of a thread count; whether that is new.
    pub(crate) fn track(&self, thread: u32) -> bool {
        self.tracked.get(thread).is_some_and(|byte| byte.swap(1, Ordering::Relaxed) == 0)
    }

    /// Takes that back for a thread that had ended before. Another may have its number by now: one that programs follow
    /// has a record.
    pub(crate) fn untrack(&self, thread: u32) -> io::Result<()> {
        let tasks: HashMap<&MapData, u32, Task> =
            HashMap::try_from(&self.tasks).map_err(|error| io::Error::other(with_causes(&error)))?;
        if tasks.get(&thread, 0).is_err()
            && let Some(byte) = self.tracked.get(thread)
        {
            byte.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Follows these threads no more.
    pub(crate) fn let_go(&mut self, threads: &HashSet<u32>) -> io::Result<()> {
        for byte in threads.iter().filter_map(|thread| self.tracked.get(*thread)) {
            byte.store(0, Ordering::Relaxed);
        }
        remove::<u32, Task>(&mut self.tasks, |thread| threads.contains(thread))
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
