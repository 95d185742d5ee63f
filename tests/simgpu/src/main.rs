//! `simgpu`: makes, breaks and inspects simulated GPU nodes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use warpmeter_simgpu::{Error, Fault, Node, Scenario, layout};

const USAGE: &str = "\
usage: simgpu create --scenario FILE --state DIR [--libraries DIR]
       simgpu fault  --state DIR kind=KIND [gpu=N] [at_s=S] [until_s=S | for_s=S] [code=N] [count=N] [metric=N] [function=NAME]
       simgpu fault  --state DIR clear
       simgpu flush  --state DIR
       simgpu show   --state DIR
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Command::parse(&words).map(run) {
        Some(Ok(text)) => say(std::io::stdout(), &text, ExitCode::SUCCESS),
        Some(Err(error)) => {
            let cause = std::error::Error::source(&error).map_or(String::new(), |c| format!(": {c}"));
            say(std::io::stderr(), &format!("simgpu: {error}{cause}\n"), ExitCode::FAILURE)
        }
        None => say(std::io::stderr(), USAGE, ExitCode::from(64)),
    }
}

fn say(mut to: impl Write, text: &str, code: ExitCode) -> ExitCode {
    match to.write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A parsed command line.
struct Command<'a> {
    verb: &'a str,
    state: PathBuf,
    scenario: Option<PathBuf>,
    libraries: Option<PathBuf>,
    words: Vec<&'a str>,
}

impl<'a> Command<'a> {
    fn parse(words: &'a [String]) -> Option<Self> {
        let (verb, rest) = words.split_first()?;
        let (mut state, mut scenario, mut libraries, mut others) = (None, None, None, Vec::new());
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--state" => state = Some(PathBuf::from(rest.next()?)),
                "--scenario" => scenario = Some(PathBuf::from(rest.next()?)),
                "--libraries" => libraries = Some(PathBuf::from(rest.next()?)),
                other if other.starts_with('-') => return None,
                other => others.push(other),
            }
        }
        let known = match verb.as_str() {
            "create" => scenario.is_some() && others.is_empty(),
            "fault" => !others.is_empty(),
            "flush" | "show" => others.is_empty(),
            _ => false,
        };
        if !known {
            return None;
        }
        Some(Self { verb, state: state?, scenario, libraries, words: others })
    }
}

fn run(command: Command<'_>) -> Result<String, Error> {
    let state = command.state.as_path();
    match (command.verb, command.scenario) {
        ("create", Some(scenario)) => {
            warpmeter_simgpu::create(state, &Scenario::load(&scenario)?)?;
            if let Some(to) = command.libraries {
                let program = std::env::current_exe().map_err(|source| Error::File {
                    action: "find",
                    path: "simgpu".into(),
                    source,
                })?;
                warpmeter_simgpu::install_libraries(program.parent().unwrap_or(Path::new(".")), &to)?;
            }
            Ok(String::new())
        }
        ("fault", _) if command.words == ["clear"] => {
            warpmeter_simgpu::clear_faults(state).map(|()| String::new())
        }
        ("fault", _) => {
            let fault = Fault::from_words(command.words)?;
            warpmeter_simgpu::inject(state, &fault).map(|()| String::new())
        }
        ("flush", _) => warpmeter_simgpu::flush(state).map(|()| String::new()),
        _ => show(state),
    }
}

fn show(state: &Path) -> Result<String, Error> {
    let node = Node::open(state)?;
    let mut guard = node.lock();
    let now = guard.now;
    guard.advance_all(now);
    let mut lines = vec![format!(
        "elapsed {:.3} s, faults {}, lock recoveries {}, oracle records lost {}",
        seconds(now - guard.epoch),
        guard.faults,
        guard.recoveries,
        guard.log_lost
    )];
    for e in guard.engine.iter().take(guard.engines as usize) {
        let Some(device) = guard.device.get(e.device as usize) else { continue };
        lines.push(format!(
            "gpu {} {} {} {}: active {:.3} s, sm {:.3} s, memory {} of {} MiB, queued {}",
            e.device,
            device.preset().name,
            device.uuid.as_str(),
            if e.gi == layout::NONE { "whole" } else { e.uuid.as_str() },
            seconds(e.totals.active),
            seconds(e.totals.sm / 1000),
            e.memory_used >> 20,
            e.memory >> 20,
            e.pending
        ));
        let clients = e.listed().iter().filter_map(|&c| guard.client.get(c as usize));
        lines.extend(clients.map(|c| {
            format!(
                "  pid {}: active {:.3} s, sm {:.3} s, memory {} MiB, contexts {}, queued {}",
                c.pid,
                seconds(c.totals.active),
                seconds(c.totals.sm / 1000),
                c.memory >> 20,
                c.contexts,
                c.pending
            )
        }));
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
