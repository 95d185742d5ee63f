//! The kernel's own processes, cgroups and files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use warpmeter_core::fact::{Fact, Opened, Process};
use warpmeter_core::identity::{HostPid, Scope};

use super::tree::{ID, UID, pod};
use crate::host::proc::Proc;
use crate::host::{HostRoots, HostSource};

/// A child that is ended with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> HostPid {
        HostPid(self.0.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A chain of cgroups that is removed with the test.
struct Cgroup {
    hierarchy: PathBuf,
    path: PathBuf,
}

impl Cgroup {
    /// Makes `path` where this process may: in a unified hierarchy, or in one of version 1.
    fn make(path: &str) -> Option<Self> {
        ["", "unified", "pids", "systemd", "memory"].iter().find_map(|name| {
            let hierarchy = Path::new("/sys/fs/cgroup").join(name);
            let cgroup = Self { path: hierarchy.join(path), hierarchy };
            // A directory that is no cgroup takes no process.
            let made =
                cgroup.hierarchy.join("cgroup.procs").exists() && fs::create_dir_all(&cgroup.path).is_ok();
            (made && cgroup.path.join("cgroup.procs").exists()).then_some(cgroup)
        })
    }

    fn take(&self, process: &Running) -> bool {
        fs::write(self.path.join("cgroup.procs"), process.pid().0.to_string()).is_ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let mut path = self.path.as_path();
        // The kernel takes a moment to empty the cgroup of a process that has ended.
        let patience = Instant::now() + Duration::from_secs(2);
        while path != self.hierarchy && Instant::now() < patience {
            match fs::remove_dir(path) {
                Ok(()) => path = path.parent().unwrap(),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn source() -> HostSource {
    HostSource::new(HostRoots::default())
}

fn poll(source: &mut HostSource, wanted: &[HostPid]) -> Vec<Fact> {
    let mut out = Vec::new();
    source.poll(wanted, &mut out);
    out
}

/// What `facts` say last of the process that has `pid`.
fn told(facts: &[Fact], pid: HostPid) -> Option<&Process> {
    facts.iter().rev().find_map(|fact| match fact {
        Fact::Process(process) if process.id.pid == pid => Some(process),
        _ => None,
    })
}

#[test]
fn a_process_in_a_pods_cgroup_is_that_pods() {
    let path = format!("warpmeter-test-{}/kubepods/burstable/pod{UID}/{ID}", std::process::id());
    let Some(cgroup) = Cgroup::make(&path) else {
        println!("skipped: no cgroup can be made here");
        return;
    };
    let child = Running::start(Command::new("sleep").arg("60"));
    let mut source = source();
    assert_eq!(told(&poll(&mut source, &[]), child.pid()), None);
    if !cgroup.take(&child) {
        println!("skipped: no process can be moved into a cgroup here");
        return;
    }
    let mut facts = poll(&mut source, &[]);
    assert_eq!(told(&facts, child.pid()).unwrap().scope, pod());
    // On a machine with many containers its files may have to wait for their turn.
    let patience = Instant::now() + Duration::from_secs(10);
    while told(&facts, child.pid()).unwrap().opened.is_none() && Instant::now() < patience {
        facts.extend(poll(&mut source, &[]));
    }
    let process = told(&facts, child.pid()).unwrap();
    assert_eq!(process.opened, Some(Opened::default()));
    let (id, pid) = (process.id, child.pid());
    drop(child);
    let facts = poll(&mut source, &[]);
    assert!(facts.contains(&Fact::Gone(id)) && told(&facts, pid).is_none(), "{facts:?}");
}

#[test]
fn device_files_that_a_process_has_open_are_seen() {
    let dev = TempDir::new().unwrap();
    let file = |name| File::create(dev.path().join(name)).unwrap();
    let child = Running::start(
        Command::new("sleep")
            .arg("60")
            .stdin(file("nvidiactl"))
            .stdout(file("nvidia3"))
            .stderr(file("nvidia-uvm")),
    );
    let roots = HostRoots { dev: fs::canonicalize(dev.path()).unwrap(), ..HostRoots::default() };
    let mut out = Vec::new();
    HostSource::new(roots).look_up(&[child.pid()], &mut out);
    let opened = Some(Opened { control: true, minors: vec![3], uvm: true });
    assert_eq!(told(&out, child.pid()).unwrap().opened, opened);
}

#[test]
fn files_whose_links_may_be_listed_and_not_followed_are_unknown_and_not_closed() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let child = Running::start(Command::new("sleep").arg("60"));
    // Of this thread only: root without capabilities, beside a process that has them.
    let look = || {
        let mut sets = capabilities(None).unwrap();
        let had = !sets.effective.is_empty();
        sets.effective = CapabilitySet::empty();
        set_capabilities(None, sets).unwrap();
        let mut out = Vec::new();
        source().look_up(&[child.pid()], &mut out);
        (had, out)
    };
    let (had, out) = std::thread::scope(|scope| scope.spawn(look).join().unwrap());
    if had {
        assert_eq!(told(&out, child.pid()).unwrap().opened, None);
    } else {
        println!("skipped: it takes capabilities to be without them");
    }
}

#[test]
fn a_process_that_has_ended_is_gone_before_its_parent_takes_notice() {
    let mut child = Running::start(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()));
    let mut source = source();
    let id = told(&poll(&mut source, &[child.pid()]), child.pid()).unwrap().id;
    drop(child.0.stdin.take());
    let patience = Instant::now() + Duration::from_secs(10);
    while !poll(&mut source, &[child.pid()]).contains(&Fact::Gone(id)) {
        assert!(Instant::now() < patience, "the zombie still passes for a process");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_thread_is_no_process_even_to_the_kernel() {
    let (mut source, mut out) = (source(), Vec::new());
    let thread = std::thread::spawn(move || {
        let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        source.look_up(&[HostPid(thread), HostPid(std::process::id())], &mut out);
        (thread, out)
    });
    let (thread, out) = thread.join().unwrap();
    assert_eq!(told(&out, HostPid(thread)), None);
    assert!(told(&out, HostPid(std::process::id())).is_some());
}

#[test]
fn this_processs_scope_is_the_one_that_its_cgroup_file_names() {
    let me = HostPid(std::process::id());
    let mut out = Vec::new();
    source().look_up(&[me], &mut out);
    let text = fs::read_to_string("/proc/self/cgroup").unwrap();
    let scope: Scope = crate::host::cgroup::scope(&text);
    assert_eq!(told(&out, me).unwrap().scope, scope);
}

#[test]
fn a_file_that_a_process_opens_changes_the_number_that_the_kernel_gives() {
    let root = Proc::new("/proc".into()).open().unwrap();
    let mut shell = Command::new("sh");
    let more = Running::start(shell.args(["-c", "exec 6</dev/null 7</dev/null 8</dev/null; exec sleep 60"]));
    let plain = Running::start(Command::new("sleep").arg("60"));
    let patience = Instant::now() + Duration::from_secs(10);
    let count = |child: &Running| Proc::file_count(&root, child.pid().0);
    if count(&plain).is_none() {
        println!("skipped: this kernel does not count open files");
        return;
    }
    while count(&more).unwrap() <= count(&plain).unwrap() {
        assert!(Instant::now() < patience, "{:?} and {:?}", count(&more), count(&plain));
        std::thread::sleep(Duration::from_millis(5));
    }
}
