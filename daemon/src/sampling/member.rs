//! One process and its threads.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use warpmeter_core::identity::{ProcessId, Scope};
use warpmeter_core::probe::{Doing, Doings};
use warpmeter_core::sample::{self, Ran};

use super::file::{Files, number};
use super::wait::{Call, Wait, fault};
use crate::host::directory::{self, Unread};

/// The most threads of a process that are looked at; of one with more nothing is concluded.
const THREADS: usize = 512;
/// The least samples in an interval from which anything is concluded.
const LEAST: u64 = 8;
/// Files of threads that stay open: with a descriptor for each process, fewer than a process may have open by default.
const KEPT: usize = 384;
/// Those of them that are for threads which are sampled.
const RESERVE: usize = 128;
/// What the driver calls the thread in which it waits for events by itself: it is no work of the process.
const DRIVERS: &[u8] = b"cuda-EvtHandlr";

/// How files of processes are read.
#[derive(Debug)]
pub(super) struct Eyes {
    pub files: Files,
    /// Whether the kernel did not show what a thread waits for.
    pub denied: bool,
    text: Vec<u8>,
    entries: Vec<MaybeUninit<u8>>,
    /// How many more files of threads may stay open.
    spare: Rc<Cell<usize>>,
}

/// A file of a thread that is read again and again. Opening it each time costs several times as much as reading it.
#[derive(Debug)]
struct Kept {
    file: OwnedFd,
    spare: Rc<Cell<usize>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.spare.set(self.spare.get() + 1);
    }
}

impl Eyes {
    pub(super) fn new() -> Self {
        Self {
            files: Files::default(),
            denied: false,
            text: vec![0; 1024],
            entries: vec![MaybeUninit::uninit(); 32 * 1024],
            spare: Rc::new(Cell::new(KEPT)),
        }
    }

    /// Reads a file of a thread, and keeps it open if more than `reserve` others may be.
    fn read(
        &mut self,
        process: &OwnedFd,
        (tid, name): (u32, &str),
        kept: &mut Option<Kept>,
        reserve: usize,
    ) -> Result<&[u8], Unread> {
        if let Some(kept) = kept {
            return directory::again(&kept.file, &mut self.text);
        }
        let file = directory::file(process, &format!("task/{tid}/{name}"))?;
        let left = self.spare.get();
        if left > reserve {
            self.spare.set(left - 1);
            let spare = Rc::clone(&self.spare);
            let kept = kept.insert(Kept { file, spare });
            return directory::again(&kept.file, &mut self.text);
        }
        directory::again(&file, &mut self.text)
    }

    /// The numbers that name entries of a directory.
    pub(super) fn numbers(&mut self, directory: &OwnedFd, most: usize) -> Result<Vec<u32>, Unread> {
        let mut numbers = Vec::new();
        directory::entries(directory, &mut self.entries, |name, _| {
            let number = number(name.to_bytes()).and_then(|number| u32::try_from(number).ok());
            numbers.extend(number);
            numbers.len() < most
        })?;
        Ok(numbers)
    }

    /// What a thread does now; none if it has ended.
    fn look(&mut self, process: &OwnedFd, pid: u32, tid: u32, kept: &mut Option<Kept>) -> Option<Doing> {
        match self.read(process, (tid, "syscall"), kept, 0) {
            Ok(text) => match Call::parse(text) {
                Some(Call::Running) => Some(Doing::Cpu),
                Some(Call::Asleep(Wait::For(doing))) => Some(doing),
                Some(Call::Asleep(Wait::File(fd, disk))) => Some(self.files.doing(process, pid, fd, disk)),
                Some(Call::Asleep(Wait::Fault)) => {
                    let function = directory::read(process, &format!("task/{tid}/wchan"), &mut self.text);
                    Some(function.map_or(Doing::Unknown, fault))
                }
                None => Some(Doing::Unknown),
            },
            Err(Unread::Vanished) => None,
            Err(Unread::Denied | Unread::Failed(_)) => {
                self.denied = true;
                // Whether it runs is shown to everybody.
                let text = directory::read(process, &format!("task/{tid}/stat"), &mut self.text).ok()?;
                let end = text.iter().rposition(|byte| *byte == b')')?;
                let runs = text.get(end + 2) == Some(&b'R');
                Some(if runs { Doing::Cpu } else { Doing::Unknown })
            }
        }
    }

    /// How long a thread has run and waited for a CPU since its start, if the kernel counts that; an error if it has
    /// ended.
    fn ran(&mut self, process: &OwnedFd, tid: u32, kept: &mut Option<Kept>) -> Result<Option<Ran>, Unread> {
        match self.read(process, (tid, "schedstat"), kept, RESERVE) {
            Ok(text) => Ok(ran(text)),
            Err(Unread::Vanished) => Err(Unread::Vanished),
            Err(Unread::Denied | Unread::Failed(_)) => Ok(None),
        }
    }
}

/// Time on and without a CPU, of the text of a `schedstat` file.
fn ran(text: &[u8]) -> Option<Ran> {
    let text = std::str::from_utf8(text).ok()?;
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    let [cpu, waited, slices] = [fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?];
    // Every thread has been given a CPU; a kernel that does not count writes zeros.
    (slices > 0_u64).then_some(Ran { cpu, waited })
}

/// A thread.
#[derive(Debug)]
struct Thread {
    /// What the kernel had counted at the end of the last interval.
    ran: Option<Ran>,
    /// What was seen in this one.
    seen: Doings,
    /// What it waits for, if it slept through the last interval: it is not looked at again while it does.
    still: Option<Doing>,
    /// Whether it is the driver's own.
    drivers: bool,
    /// The file of what it has run.
    schedstat: Option<Kept>,
    /// That of the system call that it is in, while it has to be looked at.
    syscall: Option<Kept>,
}

/// What a process did in an interval.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// All its threads, in thread time.
    pub threads: Doings,
    /// The process as a whole, if enough was seen, and in how many samples.
    pub whole: Option<(Doings, u64)>,
}

/// A process.
#[derive(Debug)]
pub(super) struct Member {
    pub id: ProcessId,
    pub scope: Scope,
    /// Whether it uses a GPU.
    pub uses: bool,
    /// Whether it is sampled in this interval.
    pub watched: bool,
    directory: OwnedFd,
    threads: BTreeMap<u32, Thread>,
    /// How many links the directory of its threads had when they were listed: one for each.
    links: Option<usize>,
    /// What the threads did together, by samples.
    seen: Doings,
    samples: u64,
    /// Whether it has so many threads that not all are looked at.
    crowded: bool,
}

impl Member {
    /// The process that has a pid now.
    pub(super) fn open(proc: &Path, id: ProcessId, scope: Scope, uses: bool) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat(CWD, proc.join(id.pid.0.to_string()), flags, Mode::empty()).ok()?;
        Some(Self {
            id,
            scope,
            uses,
            watched: false,
            directory,
            threads: BTreeMap::new(),
            links: None,
            seen: Doings::default(),
            samples: 0,
            crowded: false,
        })
    }

    /// How many of its threads have to be looked at for a sample.
    pub(super) fn lively(&self) -> usize {
        self.threads.values().filter(|thread| thread.still.is_none()).count()
    }

    /// Takes a sample of all its threads.
    pub(super) fn sample(&mut self, eyes: &mut Eyes) {
        let mut all = Vec::with_capacity(self.threads.len());
        for (tid, thread) in &mut self.threads {
            let Thread { still, syscall, .. } = thread;
            let doing = still.or_else(|| eyes.look(&self.directory, self.id.pid.0, *tid, syscall));
            let Some(doing) = doing else { continue };
            note(&mut thread.seen, doing, 1);
            if !thread.drivers {
                all.push(doing);
            }
        }
        note(&mut self.seen, sample::together(all), 1);
        self.samples += 1;
    }

    fn list(&self, eyes: &mut Eyes) -> Option<Vec<u32>> {
        let tasks = directory::open(&self.directory, "task").ok()?;
        eyes.numbers(&tasks, THREADS).ok()
    }

    /// Ends an interval of so many nanoseconds; none if the process has ended.
    pub(super) fn account(&mut self, elapsed: u64, eyes: &mut Eyes) -> Option<Account> {
        let links = rustix::fs::statat(&self.directory, "task", AtFlags::empty()).ok()?.st_nlink;
        let links = Some(usize::try_from(links).ok()?);
        let same = links == self.links;
        let tids = if same { self.threads.keys().copied().collect() } else { self.list(eyes)? };
        self.links = links;
        self.crowded = tids.len() >= THREADS;
        let mut before = std::mem::take(&mut self.threads);
        let mut account = Account::default();
        let mut total = Some(Ran::default());
        let mut stale = false;
        for tid in tids {
            let mut known = before.remove(&tid);
            let mut file = known.as_mut().and_then(|thread| thread.schedstat.take());
            let Ok(now) = eyes.ran(&self.directory, tid, &mut file) else {
                // If another came in its place, the number of links does not tell.
                self.links = None;
                continue;
            };
            let Some(mut thread) = known else {
                let drivers = directory::read(&self.directory, &format!("task/{tid}/comm"), &mut eyes.text)
                    .is_ok_and(|name| name.trim_ascii_end() == DRIVERS);
                let seen = Doings::default();
                let thread = Thread { ran: now, seen, still: None, drivers, schedstat: file, syscall: None };
                self.threads.insert(tid, thread);
                continue;
            };
            let ran = now.zip(thread.ran).map(|(now, before)| Ran {
                cpu: now.cpu.saturating_sub(before.cpu),
                waited: now.waited.saturating_sub(before.waited),
            });
            total = total.zip(ran).map(|(total, ran)| Ran {
                cpu: total.cpu.saturating_add(ran.cpu),
                waited: total.waited.saturating_add(ran.waited),
            });
            if let Some(still) = thread.still {
                note(&mut thread.seen, still, 1);
                // It woke up, and what it did then was not seen.
                stale |= ran.is_none_or(|ran| ran.cpu.saturating_add(ran.waited) > elapsed / 20);
            }
            let did = sample::thread(elapsed, ran, &thread.seen);
            for (doing, nanos) in Doing::ALL.into_iter().zip(did) {
                note(&mut account.threads, doing, nanos);
            }
            thread.still = if ran == Some(Ran::default()) {
                let Thread { still, syscall, .. } = &mut thread;
                let known = still.or_else(|| eyes.look(&self.directory, self.id.pid.0, tid, syscall));
                known.filter(|doing| *doing != Doing::Cpu)
            } else {
                None
            };
            if thread.still.is_some() {
                thread.syscall = None;
            }
            thread.ran = now;
            thread.schedstat = file;
            thread.seen = Doings::default();
            self.threads.insert(tid, thread);
        }
        let enough = self.samples >= LEAST && !stale && !self.crowded;
        account.whole = enough.then(|| (sample::process(elapsed, total, &self.seen), self.samples));
        self.seen = Doings::default();
        self.samples = 0;
        Some(account)
    }
}

fn note(sums: &mut Doings, doing: Doing, amount: u64) {
    if let Some(sum) = sums.get_mut(doing as usize) {
        *sum = sum.saturating_add(amount);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_of_a_process_are_seen_at_what_they_do() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = rustix::fs::openat(CWD, "/proc/self", flags, Mode::empty()).unwrap();
        let (say, heard) = channel();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (pipe, timer) = (say.clone(), say);
        let tid = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let waiter = std::thread::spawn(move || {
            pipe.send((Doing::Lock, tid())).unwrap();
            reader.read(&mut [0]).unwrap()
        });
        let sleeper = std::thread::spawn(move || {
            timer.send((Doing::Timer, tid())).unwrap();
            std::thread::sleep(Duration::from_secs(2));
        });
        let mut eyes = Eyes::new();
        eyes.files.begin();
        for (doing, tid) in [heard.recv().unwrap(), heard.recv().unwrap()] {
            let mut kept = None;
            let mut look = || eyes.look(&own, std::process::id(), tid, &mut kept);
            // Until it has come there.
            let seen = (0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(5));
                look() == Some(doing)
            });
            assert!(seen, "{doing:?}");
        }
        assert!(!eyes.denied);
        assert_eq!(eyes.look(&own, std::process::id(), u32::MAX, &mut None), None, "no such thread");
        drop(writer);
        assert_eq!(waiter.join().unwrap(), 0);
        sleeper.join().unwrap();
    }

    #[test]
    fn a_thread_that_ran_is_accounted_for_as_the_kernel_counted_and_too_few_samples_say_nothing() {
        let id = ProcessId {
            pid: warpmeter_core::identity::HostPid(std::process::id()),
            start: warpmeter_core::time::MonoNs(0),
        };
        let mut eyes = Eyes::new();
        let mut member = Member::open(Path::new("/proc"), id, Scope::Host, true).unwrap();
        member.account(1, &mut eyes).unwrap();
        for _ in 0..LEAST - 1 {
            member.sample(&mut eyes);
        }
        assert_eq!(member.account(1, &mut eyes).unwrap().whole, None);
        for _ in 0..LEAST {
            member.sample(&mut eyes);
        }
        let elapsed = 3_600_000_000_000;
        let (whole, samples) = member.account(elapsed, &mut eyes).unwrap().whole.unwrap();
        assert_eq!((whole.iter().sum::<u64>(), samples), (elapsed, LEAST));
    }

    #[test]
    fn threads_that_come_and_go_are_seen_to_and_no_file_of_theirs_stays_open() {
        let pid = warpmeter_core::identity::HostPid(std::process::id());
        let id = ProcessId { pid, start: warpmeter_core::time::MonoNs(0) };
        let mut eyes = Eyes::new();
        let mut member = Member::open(Path::new("/proc"), id, Scope::Host, true).unwrap();
        member.account(1, &mut eyes).unwrap();
        // One at a time, so that the number of threads says nothing.
        for _ in 0..3 {
            let (say, heard) = channel::<u32>();
            let (go, wait) = channel::<()>();
            let thread = std::thread::spawn(move || {
                say.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
                wait.recv().unwrap_err()
            });
            let tid = heard.recv().unwrap();
            // Other tests' threads come and go as well.
            let seen = (0..3).any(|_| {
                member.account(1, &mut eyes).unwrap();
                member.sample(&mut eyes);
                member.threads.contains_key(&tid)
            });
            assert!(seen);
            drop(go);
            thread.join().unwrap();
        }
        let open: usize = member
            .threads
            .values()
            .map(|thread| usize::from(thread.schedstat.is_some()) + usize::from(thread.syscall.is_some()))
            .sum();
        assert_eq!(eyes.spare.get(), KEPT - open);
        drop(member);
        assert_eq!(eyes.spare.get(), KEPT);
    }
}
