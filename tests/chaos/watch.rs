//! What must hold in every scrape, and the daemon's memory over time.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::assert_conserved;
use warpmeter_tests::tool;

/// The first part of a run fills what stays full.
const WARM: Duration = Duration::from_secs(120);
/// All processes together stay below this, in MiB.
const MOST: f64 = 96.0;
/// Their growth after that stays below this, in MiB a minute.
const GROWTH: f64 = 0.5;
/// Counters that begin anew with a process of the daemon's own, or are the driver's and gone with it.
const ANEW: [&str; 4] = ["_source_cpu_", "_pcie_replays_", "_ecc_", "_remapped_"];
/// Sums of numbers printed as floats differ by no more.
const ROUNDING: f64 = 1e-6;

type Key = (String, BTreeMap<String, String>);

/// What was seen so far.
pub(super) struct Watch {
    start: Instant,
    before: BTreeMap<Key, f64>,
    scrapes: u32,
    checked: u32,
    most_series: usize,
    slowest: Duration,
    /// Seconds since the start and MiB, of all processes.
    memory: Vec<(f64, f64)>,
    /// The same of the main process, which nothing restarts.
    main: Vec<(f64, f64)>,
    pid: u32,
    files: usize,
}

impl Watch {
    pub(super) fn new(daemon: &Daemon) -> Self {
        Self {
            start: Instant::now(),
            before: BTreeMap::new(),
            scrapes: 0,
            checked: 0,
            most_series: 0,
            slowest: Duration::ZERO,
            memory: Vec::new(),
            main: Vec::new(),
            pid: daemon.pid(),
            files: tool::open_files(daemon.pid()),
        }
    }

    /// One scrape, and what must hold in it.
    pub(super) fn scrape(&mut self, daemon: &Daemon) {
        let began = Instant::now();
        let answer = daemon.ask("/metrics").unwrap();
        self.slowest = self.slowest.max(began.elapsed());
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        let metrics = Exposition::parse(answer.text()).unwrap();
        assert_conserved(&metrics);
        self.most_series = self.most_series.max(metrics.series.len());
        self.scrapes += 1;
        if self.scrapes % 30 == 1
            && let Some(promtool) = tool::find("promtool")
        {
            check(&promtool, answer.text());
            self.checked += 1;
        }
        self.never_falls(metrics);
        let children: f64 = daemon.children().into_iter().map(mib).sum();
        let (at, main) = (self.start.elapsed(), mib(self.pid));
        self.memory.push((at.as_secs_f64(), main + children));
        if at >= WARM {
            self.main.push((at.as_secs_f64(), main));
        }
    }

    /// No counter falls while it is there.
    fn never_falls(&mut self, metrics: Exposition) {
        let counters = metrics.series.into_iter().filter(|series| series.name.ends_with("_total"));
        let counters = counters.filter(|series| !ANEW.iter().any(|anew| series.name.contains(anew)));
        let now: BTreeMap<Key, f64> =
            counters.map(|series| ((series.name, series.labels), series.value)).collect();
        for (key, value) in &now {
            let before = self.before.get(key).copied().unwrap_or(0.0);
            assert!(*value >= before - ROUNDING, "{key:?} fell from {before} to {value}");
        }
        for key in self.before.keys().filter(|(name, labels)| {
            let steady = labels.get("pod").is_some_and(|pod| pod.starts_with("steady-"));
            let main = labels.get("container").is_some_and(|container| container == "main");
            steady && main || name.starts_with("warpmeter_gpu_")
        }) {
            assert!(now.contains_key(key), "{key:?} is gone");
        }
        self.before = now;
    }

    /// MiB a minute after the first part, from the median of its first third to that of its last; nothing if the run
    /// was too short. Medians: processes that were abandoned in a call that hangs come and go.
    fn growth(&self) -> Option<f64> {
        let mut points: Vec<(f64, f64)> =
            self.memory.iter().copied().filter(|(at, _)| *at >= WARM.as_secs_f64()).collect();
        let third = points.len() / 3;
        if third < 20 {
            return None;
        }
        let last = points.split_off(points.len() - third);
        points.truncate(third);
        let [(from, before), (to, after)] = [points, last].map(|part| {
            let minute = part[part.len() / 2].0 / 60.0;
            let mut sizes: Vec<f64> = part.into_iter().map(|(_, mib)| mib).collect();
            sizes.sort_by(f64::total_cmp);
            (minute, sizes[sizes.len() / 2])
        });
        Some((after - before) / (to - from))
    }

    /// MiB a minute of the main process after the first part, by least squares; nothing if the run was too short.
    fn slope(&self) -> Option<f64> {
        let count = f64::from(u32::try_from(self.main.len()).unwrap());
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| self.main.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
        let spread = mean(&|point| (point.0 - x).powi(2));
        let slope = mean(&|point| (point.0 - x) * (point.1 - y)) / spread * 60.0;
        (self.main.len() >= 60).then_some(slope)
    }

    fn most(&self) -> f64 {
        self.memory.iter().map(|(_, mib)| *mib).fold(0.0, f64::max)
    }

    pub(super) fn report(&self, ran: Duration) -> String {
        let growth = self.growth().map_or("not known".into(), |growth| format!("{growth:.3} MiB a minute"));
        let last = self.memory.last().map_or(0.0, |(_, mib)| *mib);
        let main = match (self.main.first(), self.main.last(), self.slope()) {
            (Some((_, from)), Some((_, to)), Some(slope)) => {
                format!(", the main process from {from:.1} to {to:.1} by {slope:.3}")
            }
            _ => String::new(),
        };
        format!(
            "scrapes: {} in {:.0} s, {} through promtool, the slowest in {:.0} ms, at most {} series\n\
             memory: {:.1} MiB at most, {last:.1} at the end, growing by {growth}{main}\n\
             open files: {} at the start, {} at the end\n",
            self.scrapes,
            ran.as_secs_f64(),
            self.checked,
            self.slowest.as_secs_f64() * 1000.0,
            self.most_series,
            self.most(),
            self.files,
            tool::open_files(self.pid),
        )
    }

    /// Whether the whole run was right.
    pub(super) fn judge(&self) {
        assert!(self.most() < MOST, "{} MiB", self.most());
        if let Some(growth) = self.growth() {
            assert!(growth < GROWTH, "{growth} MiB a minute");
        }
        if let Some(slope) = self.slope() {
            assert!(slope < GROWTH, "the main process: {slope} MiB a minute");
        }
        assert!(tool::open_files(self.pid) < self.files + 16, "files stay open");
    }
}

fn mib(pid: u32) -> f64 {
    f64::from(u32::try_from(tool::resident(pid) >> 10).unwrap()) / 1024.0
}

fn check(promtool: &std::path::Path, text: &str) {
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
