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

/// `tests/load.sh` runs it: how long it takes to attach all probes of the library in `LIBRARY`, and to detach them, both
/// ways.
#[test]
#[ignore = "a measurement: run tests/load.sh"]
fn how_long_a_library_takes_to_attach_and_to_detach() {
    let Some(path) = std::env::var_os("LIBRARY") else { return eprintln!("skipped: no LIBRARY is named") };
    let file = File::open(path).unwrap();
    let extent = Extent { returns: true, frequent: true, questions: true };
    let timed = |act: &mut dyn FnMut()| {
        let began = std::time::Instant::now();
        act();
        began.elapsed().as_secs_f64() * 1e3
    };
    let spread = |mut times: Vec<f64>, probes: usize| {
        times.sort_by(f64::total_cmp);
        let (least, middle, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        let each = 100.0 / f64::from(u32::try_from(probes).unwrap());
        format!("{middle:9.1} ({least:.1} to {most:.1}) ms, {:9.1} ms per 100 probes", middle * each)
    };
    let mut reading = Vec::new();
    for single in [false, true] {
        let mut programs = Programs::load(true).unwrap();
        if single {
            programs.take_single_points();
        } else if programs.calls.as_ref().is_ok_and(|how| *how == Attach::Single) {
            println!("this kernel has no links of many points");
            continue;
        }
        let (mut probes, mut attaching, mut detaching) = (0, Vec::new(), Vec::new());
        for _ in 0..if single { 3 } else { 9 } {
            let mut points = None;
            reading.push(timed(&mut || points = Some(Points::of(&file).unwrap())));
            let points = points.unwrap();
            let per_group = |(_, group, returns): &(&str, Group, bool)| {
                let of = |entry: &Entry| entry.group() == *group && (!returns || entry.returns());
                points.points.iter().filter(|(entry, _)| of(entry)).count()
            };
            probes = PARTS.iter().map(per_group).sum();
            let mut attached = None;
            let attach = &mut || attached = Some(programs.attach(&file, &points, extent, None).unwrap());
            attaching.push(timed(attach));
            let mut attached = attached.unwrap();
            // Not in the background, as it is otherwise.
            let singles = std::mem::take(&mut attached.singles);
            let mut parts = Some((attached, singles));
            detaching.push(timed(&mut || drop(parts.take())));
        }
        let how = if single { "one event for each" } else { "links of many points" };
        println!("{how}, {probes} probes, attach {}", spread(attaching, probes));
        println!("{how}, {probes} probes, detach {}", spread(detaching, probes));
    }
    println!("finding the functions of the library {}", spread(reading, 100));
}
