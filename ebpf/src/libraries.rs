//! The driver libraries that processes map, and the probes on them.
//!
//! A library is probed while somebody uses it. Probes hold on to the file and with it to the mount by which it was
//! opened, so they go with its last user, and off a container's overlay with that container.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;

use crate::attach::{Attached, Extent, Points};
use crate::discover::{Identity, Mapped, OpenError, Processes};
use crate::elf::ElfError;
use crate::programs::Programs;

/// The most libraries at once.
const LIBRARIES: usize = 256;
/// The most processes that are probed each by itself.
const EACH: usize = 64;

/// What is to be done about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It is probed.
    All,
    /// It is probed without its frequent calls, which would cost it too much.
    Few,
    /// Nothing of it is touched.
    Nothing,
}

#[derive(Debug)]
struct Library {
    identity: Identity,
    file: File,
    /// What it is called in messages: the path of the first process that was seen to map it.
    name: String,
    points: Points,
    /// Its users, each with how it sees it.
    users: BTreeMap<u32, Mapped>,
    /// By which of them it was opened.
    via: u32,
    all: Option<(Extent, Attached)>,
    each: BTreeMap<u32, (Extent, Attached)>,
    problem: Option<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    known: Vec<Library>,
    /// Files that are no driver, or could not be read: by process and path, with what is wrong.
    unusable: HashMap<(u32, String), String>,
    /// Too many were found.
    pub overflow: bool,
}

/// What there was to learn about a process.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// It uses a library.
    pub uses: bool,
    /// It uses one that nobody used before, so that it can have called it unseen.
    pub late: bool,
}

impl Libraries {
    /// Takes note of the libraries that a process maps. Attaches nothing yet.
    pub(crate) fn look(&mut self, processes: &Processes, pid: u32) -> Found {
        let mut found = Found::default();
        let Ok(mapped) = processes.libraries(pid) else { return found };
        for library in &mut self.known {
            if library.users.contains_key(&pid)
                && !mapped.iter().any(|one| library.users.get(&pid) == Some(one))
            {
                library.users.remove(&pid);
            }
        }
        for one in mapped {
            if self.known.iter().any(|library| library.users.get(&pid) == Some(&one)) {
                found.uses = true;
                continue;
            }
            let place = (pid, one.path.display().to_string());
            match self.take(processes, pid, &one) {
                Ok(late) => {
                    found.uses = true;
                    found.late |= late;
                    self.unusable.remove(&place);
                }
                Err(None) => {}
                Err(Some(problem)) => drop(self.unusable.insert(place, problem)),
            }
        }
        found
    }

    /// Whether the library is new; nothing is wrong if the process has just ended.
    fn take(&mut self, processes: &Processes, pid: u32, mapped: &Mapped) -> Result<bool, Option<String>> {
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
        if self.known.len() >= LIBRARIES {
            self.overflow = true;
            return Err(Some(format!("{LIBRARIES} libraries are probed already, which is the most")));
        }
        let points = Points::of(&opened.file).map_err(|error: ElfError| Some(error.to_string()))?;
        if !points.launches() {
            return Err(Some("it exports nothing that launches kernels: it is no CUDA driver".into()));
        }
        self.known.push(Library {
            identity: opened.identity,
            file: opened.file,
            name: format!("{} of process {pid}", mapped.path.display()),
            points,
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
        self.known.retain(|library| !library.users.is_empty());
    }

    /// Attaches and detaches until everything is as it is wished.
    pub(crate) fn settle(
        &mut self,
        programs: &mut Programs,
        processes: &Processes,
        returns: bool,
        by_process: bool,
        wish: impl Fn(u32) -> Wish,
    ) {
        for library in &mut self.known {
            library.follow_user(processes);
            library.problem = library.settle(programs, returns, by_process, &wish).err();
        }
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
            library.problem.as_ref().map(|problem| format!("{} is not probed: {problem}", library.name))
        });
        let mut unusable: Vec<String> = self
            .unusable
            .iter()
            .map(|((pid, path), problem)| format!("{path} of process {pid} is not probed: {problem}"))
            .collect();
        unusable.sort();
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
        returns: bool,
        by_process: bool,
        wish: &impl Fn(u32) -> Wish,
    ) -> Result<(), String> {
        let extent = |wish: Wish| match wish {
            Wish::All => Some(Extent { returns, frequent: true }),
            Wish::Few => Some(Extent { returns, frequent: false }),
            Wish::Nothing => None,
        };
        let wishes: BTreeMap<u32, Wish> = self.users.keys().map(|pid| (*pid, wish(*pid))).collect();
        let least = wishes.values().copied().max_by_key(|wish| match wish {
            Wish::All => 0,
            Wish::Few => 1,
            Wish::Nothing => 2,
        });
        let alike = wishes.values().all(|wish| Some(*wish) == least);
        if alike || !by_process || wishes.len() > EACH {
            self.each.clear();
            let wanted = least.and_then(extent);
            if self.all.as_ref().map(|(extent, _)| *extent) != wanted {
                self.all = None;
                if let Some(extent) = wanted {
                    self.all = Some((extent, programs.attach(&self.file, &self.points, extent, None)?));
                }
            }
            return Ok(());
        }
        self.all = None;
        self.each.retain(|pid, (is, _)| wishes.get(pid).copied().and_then(extent) == Some(*is));
        for (pid, extent) in wishes.iter().filter_map(|(pid, wish)| Some((*pid, extent(*wish)?))) {
            if let std::collections::btree_map::Entry::Vacant(place) = self.each.entry(pid) {
                place.insert((extent, programs.attach(&self.file, &self.points, extent, Some(pid))?));
            }
        }
        Ok(())
    }
}
