//! With the real kernel: a function of the C library stands for a launch, in this process only.

use super::*;
use crate::tables::Tables;

const CALLS: u64 = 100;

/// Launches that are counted when there were [`CALLS`] with probes, and as many before and after.
fn counted(single: bool) -> Option<u64> {
    let (me, thread) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get());
    let mut programs = match Programs::load(true) {
        Ok(programs) => programs,
        Err(error) if !rustix::process::geteuid().is_root() => {
            eprintln!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    if single {
        programs.take_single_points();
    }
    assert_eq!(programs.calls.as_ref().map(|how| *how == Attach::Single), Ok(single));
    let tables = Tables::take(&mut programs).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .find(|path| path.contains("libc.so.6"));
    let file = File::open(libc?).unwrap();
    let getpid = elf::functions_of(&file, |name| (name == b"getpid").then_some(0)).unwrap()[0];
    let launch = ENTRIES.iter().find(|entry| entry.symbol == "cuLaunchKernel").unwrap();
    let points = Points { points: vec![(launch, getpid)] };
    let call = || (0..CALLS).for_each(|_| assert_eq!(std::process::id(), me));

    call();
    let extent = Extent { returns: false, questions: true, frequent: true };
    // A link of many points is kept to a process, a perf event to a thread.
    let process = if single { thread.cast_unsigned() } else { me };
    let attached = programs.attach(&file, &points, extent, Some(process)).unwrap();
    call();
    drop(attached);
    if single {
        // They are detached in the background, one after the other.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    call();
    let reading = tables.read(0, true).unwrap();
    let own = reading.uses.iter().filter(|(key, _)| key.tgid == me);
    Some(own.map(|(_, counted)| counted.launches).sum())
}

#[test]
fn every_call_while_probes_are_attached_is_counted_whichever_way_they_are() {
    for single in [false, true] {
        // Other tests of this process may ask for its id meanwhile.
        assert!(counted(single).is_none_or(|count| (CALLS..CALLS + 20).contains(&count)), "single: {single}");
    }
}
