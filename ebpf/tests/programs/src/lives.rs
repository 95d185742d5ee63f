//! Processes whose first thread is not the last, and processes that replace their program.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

/// Runs until standard input is closed, or becomes a process that does.
pub fn run(how: &str) {
    match how {
        // The first thread ends, another goes on.
        "main-ends" => {
            std::thread::spawn(until_closed);
            // SAFETY: nothing of this thread is needed any more: all that it owned is static.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        "thread-execs" => {
            std::thread::spawn(become_another);
            loop {
                std::thread::park();
            }
        }
        "execs" => become_another(),
        other => eprintln!("no such life: {other}"),
    }
}

fn become_another() {
    // So that it is switched, and has a record.
    std::thread::sleep(Duration::from_millis(20));
    println!("before {}", crate::tid());
    let failed = Command::new(std::env::current_exe().unwrap()).arg("renewed").exec();
    eprintln!("{failed}");
}

/// What the process becomes.
pub fn renewed() {
    std::thread::sleep(Duration::from_millis(20));
    println!("after {}", crate::tid());
    until_closed();
}

fn until_closed() {
    let mut byte = [0];
    while std::io::stdin().read(&mut byte).unwrap() > 0 {}
}
