//! The cases: 2 to 16 processes, and every way to share that a node has.

use crate::MS;
use crate::case::{Case, Grant, Process, Sharing, Watch, Whose};
use crate::program::Program;

/// The cases in which the probes do not see one process: most of what they cannot divide is nobody's.
pub const UNSEEN: [&str; 5] = [
    "2, one not watched",
    "2, one refuses probes",
    "2, one refuses probes under an MPS server's name",
    "2 under MPS, one refuses probes",
    "3 under MPS, one refuses probes under an MPS server's name",
];
/// The case in which a device is held in unequal parts.
pub const FRACTIONS: &str = "2 with 30 and 70 % by HAMi";
/// The case in which processes wait for one another under MPS, which nothing tells from running beside one another.
pub const TIGHT: &str = "2 under MPS that do not fit";

/// Cases of processes that never wait for their kernels, so that nothing says how long these are.
pub const AHEAD: &str = "2 that run ahead";
/// The same beside one that always has work.
pub const BESIDE: &str = "2, one greedy, one runs ahead";

/// All of them.
pub fn cases() -> Vec<Case> {
    let (hog, duty) = (Program::hog(), Program::duty);
    let mut cases = vec![
        Case::pods("2 equal", Sharing::Turns, &[hog, hog]),
        Case::pods("2 of unequal duty", Sharing::Turns, &[duty(60), duty(10)]),
        Case::pods("2, one greedy", Sharing::Turns, &[hog, duty(10)]),
        Case::pods(BESIDE, Sharing::Turns, &[hog, Program::run_ahead(10 * MS, 3 * MS)]),
        ahead(),
        Case::pods(
            AHEAD,
            Sharing::Turns,
            &[Program::run_ahead(10 * MS, 3 * MS), Program::run_ahead(20 * MS, 4 * MS)],
        ),
        Case::pods("4 of unequal duty", Sharing::Turns, &[hog, duty(30), duty(10), duty(3)]),
        Case::pods("8 of unequal duty", Sharing::Turns, &[1, 2, 3, 5, 8, 13, 21, 34].map(duty)),
        Case::pods(
            "16 of unequal duty",
            Sharing::Turns,
            &std::array::from_fn::<_, 16, _>(|n| duty(1 + n as u64)),
        ),
        Case::pods("16 equal", Sharing::Turns, &[hog; 16]),
        Case::pods(
            "4 in bursts",
            Sharing::Turns,
            &[
                hog.in_bursts(300 * MS, 700 * MS),
                hog.in_bursts(1500 * MS, 2500 * MS),
                duty(20).in_bursts(700 * MS, 400 * MS),
                duty(20),
            ],
        ),
        Case::pods("4, one silent", Sharing::Turns, &[hog, duty(20), duty(20), Program::silent()]),
        Case::pods(
            "4, one dies within a window",
            Sharing::Turns,
            &[hog, duty(20), hog.until(5_430 * MS), duty(10)],
        ),
        Case::pods(
            "4, one begins within a window",
            Sharing::Turns,
            &[hog, duty(20), hog.from(5_430 * MS), duty(10)],
        ),
        hidden(UNSEEN[0], Sharing::Turns, 2, Watch::Unwatched),
        hidden(UNSEEN[1], Sharing::Turns, 2, Watch::Refused),
        disguised(hidden(UNSEEN[2], Sharing::Turns, 2, Watch::Refused)),
        host(),
        containers(),
        hami(),
        fractions(),
        devices(),
    ];
    cases.extend(mps());
    cases.extend(mig());
    cases
}

/// Three that launch faster than the device runs, and never wait: one of them the host's.
fn ahead() -> Case {
    let fast = Program::run_ahead(MS, 900 * crate::US);
    let mut case = Case::pods("2 and a host process that run ahead", Sharing::Turns, &[fast, fast]);
    case.processes.push(Process::of(Whose::Host, 0, fast));
    case
}

/// Of the last of so many, nothing is seen that it asks for.
fn hidden(name: &'static str, sharing: Sharing, count: usize, watch: Watch) -> Case {
    let programs = [40, 30, 20].map(|percent| Program::duty(percent).wide(300));
    let mut case = Case::pods(name, sharing, &programs[..count]);
    case.processes[count - 1].watch = watch;
    case
}

/// The same, which has the name of an MPS server.
fn disguised(mut case: Case) -> Case {
    case.processes.last_mut().unwrap().disguised = true;
    case
}

fn host() -> Case {
    let mut case = Case::pods("2 and a host process", Sharing::Turns, &[Program::hog(), Program::duty(20)]);
    case.processes.push(Process::of(Whose::Host, 0, Program::duty(30)));
    case
}

/// Two pods of two containers each, and one container with two processes.
fn containers() -> Case {
    let process = |pod, container, program| Process::of(Whose::Pod(pod, container), 0, program);
    let grant = |pod, container| Grant::of((pod, container), 0, "{gpu}::{n}");
    Case {
        name: "2 pods of several containers",
        gpus: 1,
        sharing: Sharing::Turns,
        replicas: 4,
        processes: vec![
            process(0, 0, Program::hog()),
            process(0, 1, Program::duty(20)),
            process(1, 0, Program::duty(10)),
            process(1, 0, Program::duty(15)),
        ],
        grants: vec![grant(0, 0), grant(0, 1), grant(1, 0)],
    }
}

/// Slots as HAMi names them.
fn hami() -> Case {
    let programs = [Program::hog(), Program::duty(20), Program::duty(5)];
    let mut case = Case::pods("3 with HAMi's ids", Sharing::Turns, &programs);
    case.replicas = 10;
    for grant in &mut case.grants {
        grant.id = "{gpu}-{n}";
    }
    case
}

/// Slots as HAMi names them, of which its scheduler has noted how much of the device they are.
fn fractions() -> Case {
    let mut case = Case::pods(FRACTIONS, Sharing::Turns, &[Program::hog(), Program::duty(50)]);
    case.replicas = 10;
    for (grant, share) in case.grants.iter_mut().zip([30, 70]) {
        (grant.id, grant.share) = ("{gpu}-{n}", Some(share));
    }
    case
}

/// Two processes on two devices each, and one on one of them.
fn devices() -> Case {
    let grant = |pod, device| Grant::of((pod, 0), device, "{gpu}::{n}");
    let process = |pod, programs: &[(usize, Program)]| Process::on(Whose::Pod(pod, 0), programs);
    let (hog, duty) = (Program::hog(), Program::duty);
    Case {
        name: "3 on several devices",
        gpus: 2,
        sharing: Sharing::Turns,
        replicas: 4,
        processes: vec![
            process(0, &[(0, hog), (1, duty(10))]),
            process(1, &[(0, duty(20)), (1, duty(40))]),
            process(2, &[(1, duty(15))]),
        ],
        grants: vec![grant(0, 0), grant(0, 1), grant(1, 0), grant(1, 1), grant(2, 1)],
    }
}

fn mps() -> Vec<Case> {
    let (hog, duty) = (Program::hog().wide(400), |percent| Program::duty(percent).wide(300));
    let mut limited = Case::pods(
        "2 under MPS with limited threads",
        Sharing::Mps,
        &[hog.wide(250), Program::duty(60).wide(750)],
    );
    limited.processes[0].threads = Some(25);
    limited.processes[1].threads = Some(75);
    vec![
        Case::pods("1 under MPS", Sharing::Mps, &[duty(40)]),
        Case::pods("2 under MPS", Sharing::Mps, &[hog, duty(20)]),
        limited,
        Case::pods(TIGHT, Sharing::Mps, &[hog.wide(900), duty(30).wide(900)]),
        Case::pods("4 under MPS", Sharing::Mps, &[hog, duty(30), duty(10), Program::silent()]),
        Case::pods("8 under MPS", Sharing::Mps, &[3, 5, 8, 10, 15, 20, 25, 30].map(duty)),
        hidden(UNSEEN[3], Sharing::Mps, 2, Watch::Refused),
        disguised(hidden(UNSEEN[4], Sharing::Mps, 3, Watch::Refused)),
    ]
}

fn mig() -> Vec<Case> {
    let on = |device, pod: u32, program| Process::of(Whose::Pod(pod, 0), device, program);
    let each = Case {
        name: "7 on MIG 7 × 1g",
        gpus: 1,
        sharing: Sharing::Mig(7),
        replicas: 0,
        processes: (0..7_u32).map(|n| on(n as usize, n, Program::duty(5 + 10 * u64::from(n)))).collect(),
        grants: (0..7_u32).map(|n| Grant::of((n, 0), n as usize, "{mig}")).collect(),
    };
    let replicas = Case {
        name: "6 on replicas of 2 MIG instances",
        gpus: 1,
        sharing: Sharing::Mig(2),
        replicas: 4,
        processes: vec![
            on(0, 0, Program::hog()),
            on(0, 1, Program::duty(20)),
            on(0, 2, Program::duty(5)),
            on(1, 3, Program::duty(40)),
            on(1, 4, Program::duty(30)),
            on(1, 5, Program::silent()),
        ],
        grants: (0..6_u32).map(|n| Grant::of((n, 0), n as usize / 3, "{mig}::{n}")).collect(),
    };
    vec![each, replicas]
}
