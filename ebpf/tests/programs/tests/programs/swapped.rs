//! Page faults: of files they are for a disk, of swap for memory.

use std::io::Write as _;
use std::process::Command;

use warpmeter_ebpf_common::doing;
use warpmeter_ebpf_tests::permitted;

use crate::support::{Node, node, old_node};

/// A swap file that is used before others while this is.
struct Swap(std::path::PathBuf);

impl Swap {
    /// What keeps this system from having one, if anything does.
    fn on(path: std::path::PathBuf) -> Result<Self, String> {
        std::fs::write(&path, vec![0; 32 << 20]).map_err(|error| error.to_string())?;
        run(Command::new("chmod").arg("600").arg(&path))?;
        run(Command::new("mkswap").arg(&path))?;
        // Small systems have a tool without priorities, and no other swap.
        run(Command::new("swapon").args(["-p", "32767"]).arg(&path))
            .or_else(|_refused| run(Command::new("swapon").arg(&path)))?;
        Ok(Self(path))
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        drop(run(Command::new("swapoff").arg(&self.0)));
    }
}

/// A cgroup that may have less memory than the process touches.
struct Limited(std::path::PathBuf);

impl Limited {
    fn of(pid: u32) -> Result<Self, String> {
        for (root, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let made = Self(std::path::Path::new(root).join(format!("warpmeter-swapped-{pid}")));
            let taken = std::fs::create_dir(&made.0)
                .and_then(|()| std::fs::OpenOptions::new().write(true).open(made.0.join(limit)))
                .and_then(|mut file| file.write_all(b"16777216"))
                .and_then(|()| std::fs::write(made.0.join("cgroup.procs"), pid.to_string()));
            if taken.is_ok() {
                return Ok(made);
            }
        }
        Err("no cgroup limits memory".to_owned())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        drop(std::fs::remove_dir(&self.0));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn comes_back(node: &mut Node, kind: &str) {
    let mut process = node.start(&["swapped", "2", kind]);
    let held = Swap::on(node.path("swap")).and_then(|swap| Ok((swap, Limited::of(process.pid())?)));
    let held = match held {
        Ok(held) => held,
        Err(reason) => {
            eprintln!("skipped: nothing can be swapped out here: {reason}");
            process.go();
            return;
        }
    };
    node.probes.track(process.pid(), true);
    process.go();
    process.until("running");
    let pid = process.pid();
    let back = process.until("back");
    drop(process.finish());
    let doings = node.probes.process(pid).map(|process| process.others).unwrap();
    eprintln!("{back} pages came back: {doings:?}");
    drop(held);
    assert!(back > 1000, "{back} pages came back");
    let (memory, disk) = (doings[doing::MEMORY as usize], doings[doing::DISK_READ as usize]);
    assert!(memory > back * 5_000 && memory > disk * 20, "memory {memory} ns, disk {disk} ns");
}

#[test]
fn pages_that_come_back_from_swap_are_memory() {
    if permitted() {
        comes_back(&mut node(), "private");
        comes_back(&mut node(), "shared");
    }
}

#[test]
fn the_flavour_for_old_kernels_knows_swap_too() {
    if permitted() {
        comes_back(&mut old_node(), "private");
        comes_back(&mut old_node(), "shared");
    }
}
