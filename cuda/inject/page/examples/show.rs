//! Shows what an injected library tells in a process: `show PID`, once, as words and numbers on lines.
#![allow(clippy::print_stdout, reason = "a tool that shows something")]

use std::error::Error;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use warpmeter_inject_page::{LINK, Page};

/// The file in which a process keeps its page.
fn file(pid: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is = |path: &PathBuf| fs::read_link(path).is_ok_and(|to| to.as_os_str().as_bytes() == LINK);
    entries.flatten().map(|entry| entry.path()).find(is)
}

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: show PID")?;
    let file = file(&pid).ok_or("this process has no page that you may see: is the library injected?")?;
    let page = Page::read(&fs::read(file)?).map_err(|broken| format!("the page cannot be: {broken:?}"))?;
    println!("state {:?} {}", page.state, page.reason.words(page.detail));
    println!("elapsed_ns {}\nsampled_ns {}", page.elapsed, page.sampled);
    println!("records {}\ndropped {}\ndiscarded {}", page.records, page.dropped, page.discarded);
    println!("cpu_ns {}", page.cpu);
    for (number, device) in page.devices.iter().enumerate() {
        println!("device {number} {device:?}");
    }
    Ok(())
}
