//! Ten minutes of everything at once: pods that come and go, kubelets and drivers that fail, and a scrape every second
//! that must be right all the same. `tests/chaos.sh` runs it.

mod cluster;
mod fault;
mod watch;

use std::time::{Duration, Instant};

use warpmeter_simkubelet::Kubelet;
use warpmeter_tests::cgroup::Cgroups;
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::random::Random;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{kubelet, tool, wait};

use cluster::Cluster;
use fault::Faults;
use watch::Watch;

const NODE: &str = r#"
[[gpu]]
model = "H100"
count = 3

[[gpu]]
model = "H100"
mig = [{ profile = "3g.40gb" }, { profile = "2g.20gb" }]
"#;

/// Twenty pods a second.
const BEAT: Duration = Duration::from_millis(50);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
#[ignore = "ten minutes: run tests/chaos.sh"]
fn whatever_happens_every_scrape_is_valid_and_every_second_is_accounted_for() {
    let (seconds, seed) = (number("CHAOS_SECONDS", 600), number("CHAOS_SEED", 1));
    let faulty = number("CHAOS_FAULTS", 1) > 0;
    let Some(cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::alone(NODE);
    let mut node = Kubelet::new().unwrap();
    node.start().unwrap();
    let more = format!("{}[window]\nretain = \"10s\"\n[price]\nH100 = 2.95\n", kubelet::section(&node));
    let mut daemon = Daemon::start(&sim, &more);
    daemon.until_ready_is(200, "ready");

    let mut cluster = Cluster::new(&sim, &node, cgroups);
    let mut faults = Faults::new(Random(seed), seconds);
    let mut watch = Watch::new(&daemon);
    let mut random = Random(seed.wrapping_mul(31));
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    let mut beat = start;
    let mut scrape = start + Duration::from_secs(1);
    while Instant::now() < end {
        beat += BEAT;
        std::thread::sleep(beat.saturating_duration_since(Instant::now()));
        cluster.beat(&sim, &node, &mut random);
        if faulty {
            faults.beat(&sim, &mut node, &daemon);
        }
        if Instant::now() >= scrape {
            scrape = (scrape + Duration::from_secs(1)).max(Instant::now());
            watch.scrape(&daemon);
        }
    }
    // Then everything goes right again, and everything is there again.
    Faults::end(&sim, &mut node, &daemon);
    cluster.end(&node);
    let report = format!("{}{}{}", cluster.report(), faults.report(), watch.report(start.elapsed()));
    println!("seed {seed}, {seconds} s\n{report}");
    daemon.until_ready_is(200, "ready");
    let metrics = daemon.when("all GPUs", |metrics| {
        metrics.all("warpmeter_gpu_up", &[]).filter(|series| series.value > 0.5).count() == 4
    });
    warpmeter_tests::ledger::assert_conserved(&metrics);
    let children = daemon.children();
    assert_eq!(children.len(), 1, "one nvidia process");
    watch.judge();
    assert!(daemon.terminate().0.success());
    wait::until("its processes to end", || (!children.iter().any(|pid| tool::runs(*pid))).then_some(()));
}
