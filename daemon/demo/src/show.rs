//! The show: everything started, watched, compared with the truth, and taken down again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cast::{CAST, Role};
use crate::cgroup::Cgroups;
use crate::exposition::{get, scrape};
use crate::node::SimulatedNode;
use crate::processes::{DAEMON, Process, WORKLOAD};
use crate::{oracle, summary};

/// After the last work, the daemon needs this long to close the last windows of the shared device.
const SETTLE: Duration = Duration::from_millis(4500);

/// The pod that it is most worth to ask about: it waits for its disk.
const EXPLAINED: &str = "trainer-waits";

/// What the user asked for.
#[derive(Debug)]
pub(crate) struct Wishes {
    pub(crate) duration: Duration,
    pub(crate) listen: SocketAddr,
    pub(crate) record: Option<PathBuf>,
}

type Failure = Box<dyn std::error::Error>;

/// Shows the demo. Everything it made is gone when it returns, whatever happened.
pub(crate) fn show(wishes: &Wishes) -> Result<(), Failure> {
    let interrupted = interrupts()?;
    let began = Instant::now();
    let node = SimulatedNode::create()?;
    let mut cgroups = Cgroups::new();
    if let Err(reason) = &cgroups {
        say(&format!(
            "Without cgroups of their own the pods cannot be told apart, so only devices and the host are shown.\n\
             ({reason}; run as root to see pods.)\n"
        ))?;
    }
    node.configure(wishes.listen, cgroups.is_ok())?;
    let mut daemon = start_daemon(&node, wishes)?;
    if !wait_until_ready(&mut daemon, &node, wishes.listen, &interrupted)? {
        return Ok(());
    }
    say(&format!(
        "ready after {:.1} s: http://{}/metrics /status /readyz\n\n",
        began.elapsed().as_secs_f64(),
        wishes.listen
    ))?;

    let mut workloads: Vec<Process> = Vec::new();
    let mut pods: BTreeMap<u32, &Role> = BTreeMap::new();
    for role in &CAST {
        say(&format!("  {:<24} {}\n", format!("{}/{}", role.namespace, role.name), role.story))?;
        let procs = match &mut cgroups {
            Ok(cgroups) => cgroups.container(&role.uid(), &role.container())?.into_os_string(),
            Err(_) => "-".into(),
        };
        let mut arguments: Vec<OsString> = vec![WORKLOAD.into(), procs];
        arguments.extend(role.program.iter().map(OsString::from));
        arguments.extend(["--library".into(), node.cuda().into_os_string()]);
        let process = Process::start(&arguments, |command| {
            command.env("SIMGPU_STATE", node.state()).env("CUDA_VISIBLE_DEVICES", node.device(role.place).0);
        })?;
        pods.insert(process.pid(), role);
        workloads.push(process);
    }
    say("\n")?;
    if cgroups.is_ok() {
        say(&explanation(&node))?;
    }
    let told =
        watch(wishes, &node, began, cgroups.is_ok(), &interrupted).and_then(|()| Ok(scrape(wishes.listen)?));
    let Ok(told) = told else {
        let log = std::fs::read_to_string(node.log()).unwrap_or_default();
        return Err(format!("the daemon no longer answers; its log:\n{log}").into());
    };
    for workload in &mut workloads {
        if workload.ended() {
            say("a workload ended by itself: its figures are those until then\n")?;
        }
        workload.end();
    }
    if !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(SETTLE);
        let metrics = scrape(wishes.listen)?;
        let mut truth: BTreeMap<String, f64> = BTreeMap::new();
        for ((_, _, pid), busy) in oracle::read(&node.state())? {
            if let Some(role) = pods.get(&pid) {
                // The simulator logs an instance's own time; the daemon tells time of the whole GPU.
                let (device, part) = node.device(role.place);
                let of = if cgroups.is_ok() { role.name } else { device };
                *truth.entry(of.to_owned()).or_default() += part * Duration::from_nanos(busy).as_secs_f64();
            }
        }
        say(
            "\nat the end, beside the simulator's own log (used: engine time, measured; true: as it was):\n\n",
        )?;
        say(&if cgroups.is_ok() {
            summary::table(&told, Some((&metrics, &truth)))
        } else {
            summary::devices(&metrics, &node, Some(&truth))
        })?;
        say(&summary::node(&metrics))?;
    }
    daemon.end();
    Ok(())
}

/// How to ask where the figures of a pod come from, while the demo runs.
fn explanation(node: &SimulatedNode) -> String {
    let program = std::env::args().next().unwrap_or_default();
    format!(
        "where the figures of one of them come from, meanwhile in another terminal:\n  \
         {program} {DAEMON} explain {EXPLAINED} --config {}\n\n",
        node.config().display()
    )
}

fn start_daemon(node: &SimulatedNode, wishes: &Wishes) -> Result<Process, Failure> {
    let mut arguments: Vec<OsString> =
        vec![DAEMON.into(), "run".into(), "--config".into(), node.config().into_os_string()];
    if let Some(record) = &wishes.record {
        arguments.extend(["--record".into(), record.into()]);
    }
    let log = std::fs::File::create(node.log())?;
    Ok(Process::start(&arguments, |command| {
        command.env("SIMGPU_STATE", node.state()).stderr(log);
    })?)
}

/// Ready is when the daemon says so. False if the demo is to end before that.
fn wait_until_ready(
    daemon: &mut Process,
    node: &SimulatedNode,
    listen: SocketAddr,
    interrupted: &AtomicBool,
) -> Result<bool, Failure> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut last = String::from("no answer");
    while Instant::now() < deadline && !interrupted.load(Ordering::Relaxed) {
        if daemon.ended() {
            let log = std::fs::read_to_string(node.log()).unwrap_or_default();
            return Err(format!("the daemon ended at its start:\n{log}").into());
        }
        match get(listen, "/readyz") {
            Ok((200, _)) => return Ok(true),
            Ok((_, reasons)) => last = reasons,
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if interrupted.load(Ordering::Relaxed) {
        Ok(false)
    } else {
        Err(format!("the daemon is not ready: {last}").into())
    }
}

/// Shows the table until it is time to end: live in a terminal, now and then elsewhere.
fn watch(
    wishes: &Wishes,
    node: &SimulatedNode,
    began: Instant,
    with_pods: bool,
    interrupted: &AtomicBool,
) -> Result<(), Failure> {
    let live = std::io::stdout().is_terminal();
    let until = wishes.duration.saturating_sub(SETTLE);
    let mut drawn = 0;
    let mut next = began.elapsed() + Duration::from_secs(if live { 1 } else { 10 });
    while began.elapsed() < until && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if began.elapsed() < next {
            continue;
        }
        next += Duration::from_secs(if live { 1 } else { 10 });
        let metrics = scrape(wishes.listen)?;
        let table =
            if with_pods { summary::table(&metrics, None) } else { summary::devices(&metrics, node, None) };
        let mut text =
            format!("after {:.0} s\n{table}{}", began.elapsed().as_secs_f64(), summary::node(&metrics));
        if live {
            text = fitted(&text);
        }
        if live && drawn > 0 {
            // Back to the first line of the last drawing, which this one replaces.
            say(&format!("\x1b[{drawn}A\x1b[J"))?;
        }
        drawn = text.lines().count();
        say(&text)?;
    }
    Ok(())
}

/// Lines cut to the terminal's width: a line that wraps would be two when it is drawn over.
fn fitted(text: &str) -> String {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    let width = if columns == 0 { usize::MAX } else { columns };
    text.lines().map(|line| line.chars().take(width).chain(['\n']).collect::<String>()).collect()
}

/// Set when Ctrl-C or SIGTERM asks the demo to end.
fn interrupts() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
