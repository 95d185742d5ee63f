//! What goes wrong, by chance.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tonic::Code;
use warpmeter_simkubelet::{Kubelet, Manner, container, devices, pod};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::random::Random;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::wait;

/// Faults begin so often, each of the kubelet and of the driver.
const EVERY: Duration = Duration::from_millis(3500);

/// What goes wrong at present, and has so far.
pub(super) struct Faults {
    random: Random,
    kubelet: Instant,
    driver: Instant,
    kubelet_ends: Option<Instant>,
    resumes: Option<Instant>,
    counts: BTreeMap<&'static str, u32>,
    /// Faults of the driver that the simulator has noted: it has room for so many.
    noted: u32,
}

impl Faults {
    pub(super) fn new(random: Random, seconds: u64) -> Self {
        let quiet = Instant::now() + Duration::from_secs(seconds.min(4));
        Self {
            random,
            kubelet: quiet,
            driver: quiet,
            kubelet_ends: None,
            resumes: None,
            counts: BTreeMap::new(),
            noted: 0,
        }
    }

    pub(super) fn beat(&mut self, sim: &Sim, node: &mut Kubelet, daemon: &Daemon) {
        let now = Instant::now();
        if self.kubelet_ends.is_some_and(|end| end <= now) {
            self.kubelet_ends = None;
            node.behave(Manner::Answers);
            node.start().unwrap();
        }
        if self.kubelet_ends.is_none() && now >= self.kubelet {
            self.kubelet = now + EVERY;
            self.kubelet_ends = Some(now + self.length());
            self.fail_kubelet(node);
        }
        if self.resumes.is_some_and(|when| when <= now) {
            self.resumes = None;
            daemon.signal(Signal::USR2);
        }
        if now >= self.driver {
            self.driver = now + EVERY;
            self.fail_driver(sim, daemon);
        }
    }

    fn length(&mut self) -> Duration {
        Duration::from_millis(u64::try_from(200 + self.random.below(3000)).unwrap())
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn fail_kubelet(&mut self, node: &mut Kubelet) {
        let (what, manner) = match self.random.below(9) {
            0 => ("kubelet: error", Manner::Refuses(Code::Internal, "\u{1b}[31mout of order\n".into())),
            1 => ("kubelet: rate limit", Manner::Refuses(Code::ResourceExhausted, "rejected".into())),
            2 => ("kubelet: hang", Manner::Hangs),
            3 => ("kubelet: hang when asked more", Manner::HangsWhenAskedMore),
            4 => ("kubelet: only lists", Manner::OnlyLists),
            5 => {
                let bytes = (0..self.random.below(400)).map(|n| u8::try_from(n * 7 % 256).unwrap());
                ("kubelet: garbage", Manner::Sends(bytes.collect()))
            }
            6 => {
                node.start().unwrap();
                ("kubelet: restart", Manner::Answers)
            }
            7 => {
                node.stop().unwrap();
                ("kubelet: stop", Manner::Answers)
            }
            _ => {
                // Until the next pod comes; the source may have asked by then, or not.
                let ids = vec!["x".repeat(1 << 10); 1 << 10];
                let mut listed = node.listed();
                listed.push(pod(
                    "chaos",
                    "large",
                    vec![container("main", vec![devices("nvidia.com/gpu", &ids)])],
                ));
                node.list(listed);
                node.crash();
                node.start().unwrap();
                ("kubelet: 1 MiB answer", Manner::Answers)
            }
        };
        self.count(what);
        node.behave(manner);
    }

    fn fail_driver(&mut self, sim: &Sim, daemon: &Daemon) {
        let gpu = self.random.below(4);
        let length = self.length().as_secs_f64();
        let (what, words) = match self.random.below(9) {
            0 => ("driver: lost", format!("kind=lost gpu={gpu} for_s={length}")),
            1 => ("driver: hang", format!("kind=hang gpu={gpu} for_s={length}")),
            2 => ("driver: crash", format!("kind=crash gpu={gpu} for_s={length}")),
            3 => ("driver: reload", "kind=reload".into()),
            4 => ("driver: xid", format!("kind=xid gpu={gpu} code={}", 13 + self.random.below(110))),
            5 => ("driver: garbage", format!("kind=garbage gpu={gpu} for_s={length}")),
            6 => ("driver: stuck at zero", format!("kind=stuck_zero gpu={gpu} for_s={length}")),
            7 => ("driver: late", format!("kind=late for_s={length}")),
            _ => {
                self.count("driver: release");
                daemon.signal(Signal::USR1);
                self.resumes = Some(Instant::now() + self.length());
                return;
            }
        };
        self.count(what);
        self.noted += 1;
        if self.noted == 100 {
            self.noted = 1;
            sim.clear_faults();
        }
        sim.fault(&words);
    }

    /// Everything goes right from now on.
    pub(super) fn end(sim: &Sim, node: &mut Kubelet, daemon: &Daemon) {
        sim.clear_faults();
        node.behave(Manner::Answers);
        node.start().unwrap();
        // Devices that failed again and again are left alone for long, unless somebody has mended them.
        daemon.signal(Signal::USR1);
        wait::until("the driver to be let go of", || daemon.children().is_empty().then_some(()));
        daemon.signal(Signal::USR2);
    }

    pub(super) fn report(&self) -> String {
        let total: u32 = self.counts.values().sum();
        let lines: Vec<String> = self
            .counts
            .iter()
            .map(|(what, count)| {
                format!(
                    "  {what}: {count}
"
                )
            })
            .collect();
        format!(
            "faults: {total}
{}",
            lines.concat()
        )
    }
}
