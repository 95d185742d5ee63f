//! The chain of waits behind a device's leading stall, for people and as JSON.

use serde::Serialize;
use warpmeter_core::explain::{Chain, End, Explanation, Link, Recent};
use warpmeter_core::identity::ProcessId;
use warpmeter_core::probe::Doing;
use warpmeter_core::state::State;

use super::name;
use crate::units;

/// The chain as JSON.
#[derive(Serialize)]
pub(super) struct ChainJson<'a> {
    /// `state/cause` of the stall.
    behind: String,
    /// The process that drives the device.
    driver: ProcessJson<'a>,
    /// From each process to the next.
    links: Vec<LinkJson<'a>>,
    /// The last process.
    last: ProcessJson<'a>,
    /// Why it is the last.
    end: &'static str,
    /// The earlier process that it waited for in turn, where that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_turn: Option<ProcessJson<'a>>,
}

#[derive(Serialize)]
struct ProcessJson<'a> {
    pid: u32,
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct LinkJson<'a> {
    sleeper: ProcessJson<'a>,
    waker: ProcessJson<'a>,
    count: u64,
    seconds: f64,
    /// Those of them in which the waker did what the stall is of.
    seconds_concerned: f64,
    /// How many further processes the sleeper waited for that did this.
    beside: usize,
    /// Seconds of that.
    seconds_concerned_beside: f64,
}

impl<'a> ChainJson<'a> {
    /// The chain behind the leading stall of a device, if there is one.
    pub(super) fn of(explanation: &'a Explanation, recent: &Recent<'_>) -> Option<Self> {
        let chain = explanation.chain(recent)?;
        let process = |id: ProcessId| ProcessJson { pid: id.pid.0, name: called(explanation, id) };
        let link = |link: &Link| LinkJson {
            sleeper: process(link.waits.sleeper),
            waker: process(link.waits.waker),
            count: link.waits.count,
            seconds: units::seconds(link.waits.total()),
            seconds_concerned: units::seconds(link.concerned),
            beside: link.beside,
            seconds_concerned_beside: units::seconds(link.concerned_beside),
        };
        Some(Self {
            behind: name(chain.state),
            driver: process(chain.driver),
            links: chain.links.iter().map(link).collect(),
            last: process(chain.last()),
            end: chain.end.label(),
            in_turn: if let End::InTurn(earlier) = chain.end { Some(process(earlier)) } else { None },
        })
    }
}

/// The chain behind the leading stall of a device, a line for each step and one for whose doing it was.
pub(super) fn words(explanation: &Explanation, recent: &Recent<'_>, lines: &mut Vec<String>) {
    let Some(chain) = explanation.chain(recent) else { return };
    let mut parts: Vec<String> = match chain.doing {
        Some(doing) => chain.links.iter().map(|link| step(explanation, link, doing)).collect(),
        None => Vec::new(),
    };
    parts.push(ending(explanation, &chain));
    for (place, part) in parts.into_iter().enumerate() {
        lines.push(if place == 0 {
            format!("  behind the {}: {part}", name(chain.state))
        } else {
            format!("    {part}")
        });
    }
}

/// One process's waits for another.
fn step(explanation: &Explanation, link: &Link, doing: Doing) -> String {
    let Link { waits, concerned, beside, concerned_beside } = link;
    let whole = waits.total();
    let sleeper = process(explanation, waits.sleeper);
    let waited = if waits.sleeper == waits.waker {
        format!("{sleeper}: {} waits within the process", waits.count)
    } else {
        format!("{sleeper} waited for {} {} times", process(explanation, waits.waker), waits.count)
    };
    let others = if *beside > 0 {
        format!("; {:.1} s of the same for {beside} more", units::seconds(*concerned_beside))
    } else {
        String::new()
    };
    format!(
        "{waited}, {:.1} s, of which {:.0} % {}{others}",
        units::seconds(whole),
        // What is followed is more than nothing, and part of the whole.
        units::share(*concerned, whole) * 100.0,
        deed(doing),
    )
}

/// Whose doing it was, as far as that is known.
fn ending(explanation: &Explanation, chain: &Chain) -> String {
    let last = process(explanation, chain.last());
    let did = chain.doing.map_or("called the driver", did);
    match chain.end {
        End::Itself => format!("{last} itself {did}"),
        End::InTurn(earlier) => {
            let earlier = process(explanation, earlier);
            format!("{last} itself {did}, as far as it did not wait for {earlier} in turn")
        }
        End::Stranger => {
            format!("{last} is not known to be of this pod: whom it waited for is not told here")
        }
        End::Calls => format!("{last} itself, {}", in_calls(chain.state)),
        End::Waiting => {
            format!("{last} still waited when the seconds ended, so that nobody was seen to end it")
        }
        End::Unseen => format!("the calls of {last} were not seen, and no wait of it was"),
        End::Unfollowed => {
            format!("whom {last} may have waited for is not known, since wake-ups are not followed")
        }
    }
}

/// A process by what it is called, if that is known, and its pid on the host.
fn process(explanation: &Explanation, id: ProcessId) -> String {
    match called(explanation, id) {
        Some(name) => format!("{name} ({})", id.pid.0),
        None => format!("process {}", id.pid.0),
    }
}

fn called(explanation: &Explanation, id: ProcessId) -> Option<&str> {
    explanation.who.get(&id)?.1.name.as_deref()
}

/// What a waker did during a wait.
const fn deed(doing: Doing) -> &'static str {
    match doing {
        Doing::Cpu => "computation",
        Doing::CpuWait => "waits for a CPU",
        Doing::DiskRead => "reads from disks",
        Doing::DiskWrite => "writes to disks",
        Doing::Network => "waits for the network",
        Doing::Request => "waits for requests",
        Doing::Memory => "waits for memory",
        Doing::Lock => "waits for locks, or for who slept or is not watched",
        Doing::Poll | Doing::Unknown => "not known",
        Doing::Timer => "sleep",
    }
}

/// What a process did.
const fn did(doing: Doing) -> &'static str {
    match doing {
        Doing::Cpu => "computed",
        Doing::CpuWait => "waited for a CPU",
        Doing::DiskRead => "read from disks",
        Doing::DiskWrite => "wrote to disks",
        Doing::Network => "waited for the network",
        Doing::Request => "waited for requests",
        Doing::Memory => "waited for memory",
        Doing::Lock => "waited for a lock, or for who slept or is not watched",
        Doing::Poll | Doing::Unknown => "did what is not known",
        Doing::Timer => "slept",
    }
}

/// Where the time of a stall went that calls of the driver alone make.
const fn in_calls(state: State) -> &'static str {
    match state {
        State::StalledTransfer => "in its own copies",
        State::StalledLaunch => "between its own launches",
        State::StalledContended => "behind the work of others on the device",
        _ => "in its own calls that waited for its work",
    }
}
