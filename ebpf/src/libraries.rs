//! The driver libraries that processes map, and the probes on them.
//!
//! A library is probed while somebody uses it. Probes hold on to the file and with it to the mount by which it was
//! opened, so they go with its last user, and off a container's overlay with that container.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;

use warpmeter_core::identity::Scope;

use crate::attach::{Attached, Extent, Points};
use crate::discover::{Identity, Mapped, OpenError, Processes};
use crate::elf::ElfError;
use crate::programs::Programs;
use crate::words::{shown, whose};

/// The most libraries at once.
const LIBRARIES: usize = 256;
/// The most of them that one workload brings.
const SHARE: usize = 16;
/// The most processes of a library that are probed each by itself: the kernel goes through all of them at every call of
/// each, at 10 ns and more.
const EACH: usize = 64;
/// The most files that are read in a round, and of those of one workload.
const READ: usize = 16;
const READ_SHARE: usize = 4;
/// The most files that are remembered for being no driver.
const REFUSED: usize = 1024;

/// What is to be done about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// It is probed.
    All,
    /// It is probed without its questions whether something is complete, which would cost it too much.
    NoQuestions,
    /// It is probed without its frequent calls, which would cost it too much.
    Few,
    /// It is not probed, which would cost it too much.
    Nothing,
    /// Nothing of it is touched, since it refuses that.
    Refused,
}

impl Wish {
    fn extent(self, returns: bool) -> Option<Extent> {
        let extent = |questions, frequent| Some(Extent { returns, questions, frequent });
        match self {
            Self::All => extent(true, true),
            Self::NoQuestions => extent(false, true),
            Self::Few => extent(false, false),
            Self::Nothing | Self::Refused => None,
        }
    }
}

/// Probes, what they are on, and which they are: others than before may have missed calls.
#[derive(Debug)]
struct Placed {
    extent: Extent,
    serial: u64,
    _attached: Attached,
}

#[derive(Debug)]
struct Library {
    identity: Identity,
    file: File,
    /// What it is called in messages: the path of the first process that was seen to map it.
    name: String,
    points: Points,
    /// Whose process that was.
    brought: Option<Scope>,
    /// Its users, each with how it sees it.
    users: BTreeMap<u32, Mapped>,
    /// By which of them it was opened.
    via: u32,
    all: Option<Placed>,
    each: BTreeMap<u32, Placed>,
    problem: Option<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    known: Vec<Library>,
    /// Files that are no driver, or could not be read: by process and path, with the workload and what is wrong.
    unusable: HashMap<(u32, String), (Option<Scope>, String)>,
    /// Files that are no driver, and why.
    refused: HashMap<Identity, String>,
    /// How many files were read in this round, by workload.
    read: HashMap<Option<Scope>, usize>,
    /// Processes for whose files there was no time in this round.
    pub postponed: BTreeSet<u32>,
    /// Processes that used a library and do not any more: whether they call is not seen.
    departed: BTreeSet<u32>,
    /// By which probes each process was watched.
    watched: HashMap<u32, Vec<u64>>,
    serial: u64,
}

/// What there was to learn about a process.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// It uses a library.
    pub uses: bool,
    /// It uses one that nobody used before, so that it can have called it unseen.
    pub late: bool,
}

/// What has come of everything that was wished.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Users of a library of which not every call is seen.
    pub unseen: HashSet<u32>,
    /// Processes whose probes were taken away and put back: in between, calls went unseen.
    pub renewed: Vec<u32>,
}

impl Libraries {
    /// A new round begins, with time to read more files.
    pub(crate) fn renew(&mut self) -> BTreeSet<u32> {
        self.read.clear();
        std::mem::take(&mut self.postponed)
    }

    /// Takes note of the libraries that a process of this workload maps. Attaches nothing yet.
    pub(crate) fn look(&mut self, processes: &Processes, pid: u32, scope: Option<&Scope>) -> Found {
        let mut found = Found::default();
        let Ok(mapped) = processes.libraries(pid) else { return found };
        for library in &mut self.known {
            let Some(before) = library.users.get(&pid) else { continue };
            if mapped.contains(before) {
                continue;
            }
            if processes.keeps(pid, before) {
                found.uses = true;
            } else {
                library.users.remove(&pid);
                self.departed.insert(pid);
            }
        }
        for one in mapped {
            if self.known.iter().any(|library| library.users.get(&pid) == Some(&one)) {
                found.uses = true;
                continue;
            }
            let place = (pid, shown(&one.path));
            match self.take(processes, pid, &one, scope) {
                Ok(late) => {
                    found.uses = true;
                    found.late |= late;
                    self.unusable.remove(&place);
                }
                Err(None) => {}
                Err(Some(problem)) => {
                    let name = format!("{} of {}", place.1, whose(pid, scope));
                    let problem = format!("{name} is not probed: {problem}");
                    drop(self.unusable.insert(place, (scope.cloned(), problem)));
                }
            }
        }
        found
    }

    /// Whether the library is new; nothing is wrong if the process has just ended, or has to wait.
    fn take(
        &mut self,
        processes: &Processes,
        pid: u32,
        mapped: &Mapped,
        scope: Option<&Scope>,
    ) -> Result<bool, Option<String>> {
        let opened = match processes.open(pid, mapped) {
            Err(OpenError::Gone) => return Err(None),
            other => other.map_err(|error| Some(error.to_string()))?,
        };
        if let Some(library) =
            self.known.iter_mut().find(|library| library.identity.is_same(&opened.identity))
        {
            library.users.insert(pid, mapped.clone());
            return Ok(library.all.is_none() && !library.each.contains_key(&pid));
        }
        if let Some(why) = self.refused.get(&opened.identity) {
            return Err(Some(why.clone()));
        }
        if self.known.len() >= LIBRARIES {
            return Err(Some(format!("{LIBRARIES} libraries are probed already, which is the most")));
        }
        if scope.is_some()
            && self.known.iter().filter(|library| library.brought.as_ref() == scope).count() >= SHARE
        {
            return Err(Some(format!(
                "its workload has brought {SHARE} libraries already, which is the most"
            )));
        }
        let read = self.read.get(&scope.cloned()).copied().unwrap_or(0);
        if read >= READ_SHARE || self.read.values().sum::<usize>() >= READ {
            self.postponed.insert(pid);
            return Err(None);
        }
        self.read.insert(scope.cloned(), read + 1);
        let points = Points::of(&opened.file).map_err(|error: ElfError| error.to_string());
        let points = points.and_then(|points| {
            if points.launches() {
                return Ok(points);
            }
            Err("it exports nothing that launches kernels: it is no CUDA driver".into())
        });
        let points = points.map_err(|why| {
            if self.refused.len() >= REFUSED {
                self.refused.clear();
            }
            self.refused.insert(opened.identity, why.clone());
            Some(why)
        })?;
        self.known.push(Library {
            identity: opened.identity,
            file: opened.file,
            name: format!("{} of {}", shown(&mapped.path), whose(pid, scope)),
            points,
            brought: scope.cloned(),
            users: BTreeMap::from([(pid, mapped.clone())]),
            via: pid,
            all: None,
            each: BTreeMap::new(),
            problem: None,
        });
        Ok(true)
    }

    /// Lets go of processes that have ended.
    pub(crate) fn bury(&mut self, processes: &Processes) {
        for library in &mut self.known {
            library.users.retain(|pid, _| processes.lives(*pid));
        }
        self.unusable.retain(|(pid, _), _| processes.lives(*pid));
        self.departed.retain(|pid| processes.lives(*pid));
        self.known.retain(|library| !library.users.is_empty());
    }

    /// Attaches and detaches until everything is as it is wished.
    pub(crate) fn settle(
        &mut self,
        programs: &mut Programs,
        processes: &Processes,
        returns: bool,
        wish: impl Fn(u32) -> (Wish, Option<Scope>),
    ) -> Settled {
        for library in &mut self.known {
            library.follow_user(processes);
            library.problem = library.settle(programs, &mut self.serial, returns, &wish).err();
        }
        let users: HashSet<u32> = self.users().collect();
        self.departed.retain(|pid| !users.contains(pid));
        let mut settled = Settled { unseen: self.departed.iter().copied().collect(), ..Settled::default() };
        let mut watched: HashMap<u32, Vec<u64>> = HashMap::new();
        for library in &self.known {
            for pid in library.users.keys() {
                match library.each.get(pid).or(library.all.as_ref()) {
                    Some(placed) if placed.extent.frequent => {
                        watched.entry(*pid).or_default().push(placed.serial);
                    }
                    _ => drop(settled.unseen.insert(*pid)),
                }
            }
        }
        watched.retain(|pid, _| !settled.unseen.contains(pid));
        let renewed = |(pid, serials): (&u32, &Vec<u64>)| {
            let before = self.watched.get(pid)?;
            before.iter().any(|serial| !serials.contains(serial)).then_some(*pid)
        };
        settled.renewed = watched.iter().filter_map(renewed).collect();
        self.watched = watched;
        settled
    }

    /// Whether a process uses a library, or has one of which it is said why it is not probed.
    pub(crate) fn knows(&self, pid: u32) -> bool {
        self.known.iter().any(|library| library.users.contains_key(&pid))
            || self.unusable.keys().any(|(of, _)| *of == pid)
            || self.postponed.contains(&pid)
    }

    /// Users of any library.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> {
        self.known.iter().flat_map(|library| library.users.keys().copied())
    }

    /// Whether a process's launches are dear to probe.
    pub(crate) fn is_dear(&self, pid: u32) -> bool {
        let mut own = self.known.iter().filter(|library| library.users.contains_key(&pid));
        own.any(|library| library.points.launch_is_dear())
    }

    /// What is wrong, in words.
    pub(crate) fn problems(&self) -> Vec<String> {
        let failed = self.known.iter().filter_map(|library| {
            library.problem.as_ref().map(|problem| format!("{}: {problem}", library.name))
        });
        // One of each workload, so that nobody's many leave no room for the others'.
        let mut unusable: BTreeMap<Option<&Scope>, Vec<&str>> = BTreeMap::new();
        for (scope, problem) in self.unusable.values() {
            unusable.entry(scope.as_ref()).or_default().push(problem);
        }
        let unusable = unusable.into_values().filter_map(|mut problems| {
            problems.sort_unstable();
            let (first, more) = problems.split_first()?;
            Some(if more.is_empty() {
                (*first).to_owned()
            } else {
                format!("{first} (and {} more files of its workload)", more.len())
            })
        });
        failed.chain(unusable).collect()
    }

    /// Each library, with how many of its points are probed and how many of them cheaply, and its users.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&str, usize, usize, usize)> {
        self.known.iter().map(|library| {
            (library.name.as_str(), library.points.count(), library.points.cheap(), library.users.len())
        })
    }
}

impl Library {
    /// Opens the file by another user if the one by whom it was opened is gone: an overlay belongs to a container.
    fn follow_user(&mut self, processes: &Processes) {
        if self.users.contains_key(&self.via) || !self.identity.is_of_container() {
            return;
        }
        for (pid, mapped) in &self.users {
            if let Ok(opened) = processes.open(*pid, mapped) {
                (self.file, self.via, self.all) = (opened.file, *pid, None);
                self.each.clear();
                return;
            }
        }
    }

    fn settle(
        &mut self,
        programs: &mut Programs,
        serial: &mut u64,
        returns: bool,
        wish: &impl Fn(u32) -> (Wish, Option<Scope>),
    ) -> Result<(), String> {
        let by_process = programs.by_process;
        let mut place = |file: &File, points: &Points, extent, process| {
            let attached = programs.attach(file, points, extent, process);
            let attached = attached.map_err(|why| format!("it is not probed: {why}"))?;
            *serial += 1;
            Ok::<_, String>(Placed { extent, serial: *serial, _attached: attached })
        };
        let wishes: BTreeMap<u32, (Wish, Option<Scope>)> =
            self.users.keys().map(|pid| (*pid, wish(*pid))).collect();
        let least = wishes.values().map(|(wish, _)| *wish).max().unwrap_or(Wish::Refused);
        let most = wishes.values().map(|(wish, _)| *wish).min().unwrap_or(Wish::Refused);
        let alike = least == most;
        let probed = wishes.values().filter(|(wish, _)| wish.extent(returns).is_some()).count();
        let apart = by_process && (probed <= EACH || least == Wish::Refused);
        if alike || !apart {
            self.each.clear();
            let mut owners = wishes.values().map(|(_, scope)| scope);
            let first = owners.next();
            // Nobody loses his probes for another's cost.
            let (wish, problem) = match least {
                _ if alike => (least, None),
                Wish::Refused => (
                    least,
                    Some("it is not probed: a pod refuses that, and before Linux 6.10 so do all others"),
                ),
                _ if owners.all(|scope| Some(scope) == first) => (least, None),
                _ => (Wish::All, Some("processes that call too often for probes are probed with all others")),
            };
            let wanted = wish.extent(returns);
            if self.all.as_ref().map(|placed| placed.extent) != wanted {
                self.all = None;
                if let Some(extent) = wanted {
                    self.all = Some(place(&self.file, &self.points, extent, None)?);
                }
            }
            return problem.map_or(Ok(()), |problem| Err(problem.into()));
        }
        self.all = None;
        let mut wanted: BTreeMap<u32, Extent> = BTreeMap::new();
        let chosen = chosen(wishes.iter().filter(|(_, (wish, _))| wish.extent(returns).is_some()));
        for pid in &chosen {
            let extent = wishes.get(pid).and_then(|(wish, _)| wish.extent(returns));
            wanted.extend(extent.map(|extent| (*pid, extent)));
        }
        self.each.retain(|pid, placed| wanted.get(pid) == Some(&placed.extent));
        for (pid, extent) in wanted {
            if let std::collections::btree_map::Entry::Vacant(entry) = self.each.entry(pid) {
                entry.insert(place(&self.file, &self.points, extent, Some(pid))?);
            }
        }
        match probed - chosen.len() {
            0 => Ok(()),
            left => Err(format!(
                "{left} of its processes are not watched: where a pod refuses that, {EACH} others at most are probed, \
                 each by itself"
            )),
        }
    }
}

/// Those that are probed each by itself: as many of each workload as of any other, as long as there is room.
fn chosen<'w>(wishes: impl Iterator<Item = (&'w u32, &'w (Wish, Option<Scope>))>) -> BTreeSet<u32> {
    let mut counts: HashMap<&Option<Scope>, usize> = HashMap::new();
    let mut ranked: Vec<(usize, u32)> = wishes
        .map(|(pid, (_, scope))| {
            let rank = counts.entry(scope).or_default();
            *rank += 1;
            (*rank, *pid)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().take(EACH).map(|(_, pid)| pid).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_workload_of_many_processes_leaves_room_for_the_others() {
        let unit = |name: &str| Some(Scope::Unit(Arc::from(name)));
        let mut wishes: BTreeMap<u32, (Wish, Option<Scope>)> =
            (1..500).map(|pid| (pid, (Wish::All, unit("many")))).collect();
        wishes.insert(1000, (Wish::All, unit("one")));
        wishes.extend((2000..2010).map(|pid| (pid, (Wish::Few, unit("ten")))));
        let chosen = chosen(wishes.iter());
        assert_eq!(chosen.len(), EACH);
        assert!(chosen.contains(&1000) && (2000..2010).all(|pid| chosen.contains(&pid)));
        assert_eq!(super::chosen(wishes.iter()), chosen, "the same as long as nothing changes");
    }
}
