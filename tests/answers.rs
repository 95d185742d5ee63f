//! Answers of the kubelet that hold more than any node has cost no more memory than their own size and what is kept.

use warpmeter_simkubelet::{Bytes, Kubelet, Manner, container, devices, pod};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{kubelet, tool};

/// A little less than the largest answer that is read.
const LARGE: usize = (16 << 20) - 100;
/// Enough for things that take long to read in a build that is not optimised.
const ENOUGH: usize = 3 << 20;
/// What the daemon may take meanwhile: itself, the answer as it came, and what is kept of it.
const PEAK: u64 = 160 << 20;

/// A field with a length, as it is on the wire.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes.extend_from_slice(content);
    bytes
}

/// As many different `one`s as go into `size`.
fn many(size: usize, one: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0.. {
        let next = one(number);
        if bytes.len() + next.len() > size {
            break;
        }
        bytes.extend(next);
    }
    bytes
}

/// A pod on the wire that has one container with these fields.
fn holder(name: &str, container: &[u8]) -> Vec<u8> {
    let container = [&field(1, "main"), container].concat();
    field(1, [field(1, name), field(2, "ns"), field(3, container)].concat())
}

fn ids(ids: &[u8]) -> Vec<u8> {
    field(2, [&field(1, "nvidia.com/gpu"), ids].concat())
}

fn answered(metrics: &Exposition) -> f64 {
    metrics.get("warpmeter_source_last_answer_timestamp_seconds", &[("source", "pods")]).unwrap_or(0.0)
}

#[test]
fn whatever_fits_into_an_answer_the_daemon_stays_small_and_says_what_is_left_out() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let gpu = sim.gpus[0].uuid.as_str();
    let whole = ids(&field(2, gpu));
    let mut node = Kubelet::new().unwrap();
    node.list(vec![pod("ns", "p", vec![container("main", vec![devices("nvidia.com/gpu", &[gpu])])])]);
    node.start().unwrap();
    let daemon = Daemon::start(&sim, &kubelet::section(&node));
    daemon.when("the pod", |metrics| elapsed(metrics, gpu) > 0.5 && answered(metrics) > 0.0);
    let unnamed = many(LARGE, |_| field(1, ""));
    let answers = [
        ("eight million pods without a name", unnamed, ""),
        (
            "a pod with millions of containers",
            field(1, [field(1, "p"), field(2, "ns"), many(LARGE, |_| field(3, ""))].concat()),
            "",
        ),
        (
            "a pod with hundreds of thousands of devices",
            holder("p", &ids(&many(ENOUGH, |number| field(2, format!("nvidia{number}"))))),
            "hold GPUs are left out",
        ),
        (
            "a million unknown devices",
            holder("p", &ids(&many(ENOUGH, |number| field(2, format!("{number:x}"))))),
            "cannot be understood",
        ),
        (
            "a claim with a hundred thousand devices",
            holder(
                "p",
                &field(
                    5,
                    field(
                        4,
                        many(ENOUGH, |number| {
                            field(1, field(1, format!("k8s.gpu.nvidia.com/d=gpu-{number}")))
                        }),
                    ),
                ),
            ),
            "hold GPUs are left out",
        ),
        (
            "two hundred thousand pods without devices",
            many(ENOUGH, |number| field(1, [field(1, format!("p{number}")), field(2, "n")].concat())),
            "without GPUs are left out",
        ),
        (
            "twenty thousand pods on one GPU",
            (0..20_000).flat_map(|number| holder(&format!("p{number:05}"), &whole)).collect(),
            "18976 pods that hold GPUs are left out",
        ),
    ];
    let mut tell = |what: &str, list: Vec<u8>, reason: &str| {
        tool::forget_peak(daemon.pid());
        node.behave(Manner::Lists(Bytes::from(list)));
        node.start().unwrap();
        let asked = node.calls().list;
        daemon.until_status(what, |status| {
            let sources = status["sources"].as_array().unwrap();
            let pods = sources.iter().find(|source| source["source"] == "pods").unwrap();
            pods["reason"].as_str().is_some_and(|found| found.contains(reason))
        });
        // Who asks again has read the answer before.
        let metrics = daemon.when(what, |_| node.calls().list >= asked + 2);
        assert_conserved(&metrics);
        let peak = tool::peak(daemon.pid());
        println!("{what}: {} MiB", peak >> 20);
        assert!(peak < PEAK, "{what}: {} MiB", peak >> 20);
    };
    for (what, list, reason) in answers {
        tell(what, list, reason);
    }
    let until = elapsed(&daemon.scrape(), gpu) + 3.0;
    let metrics = daemon.when("seconds of it", |metrics| elapsed(metrics, gpu) > until);
    assert_conserved(&metrics);
    // What held it before stays a while beside them: a kubelet that has just started may not know it yet.
    let holders =
        metrics.all("warpmeter_pod_allocated_gpus", &[]).filter(|series| series.label("pod") != "p");
    assert_eq!(holders.count(), 1024);
    let text = daemon.ask("/metrics").unwrap();
    assert!(text.body.len() < 16 << 20, "{} bytes", text.body.len());
    let peak = tool::peak(daemon.pid());
    println!("with their accounts: {} MiB, {} bytes of metrics", peak >> 20, text.body.len());
    assert!(peak < PEAK, "{} MiB", peak >> 20);
    let replicas: Vec<u8> = (0..1 << 16).flat_map(|number| field(2, format!("{gpu}::{number}"))).collect();
    tell("as many replicas as are kept, beside them", holder("q", &ids(&replicas)), "");
}

#[test]
fn a_kubelet_that_varies_what_it_says_is_not_logged_without_end() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let mut node = Kubelet::new().unwrap();
    node.start().unwrap();
    let daemon = Daemon::start(&sim, &kubelet::section(&node));
    let ask = |node: &mut Kubelet| {
        let asked = node.calls().list;
        // Made anew, the socket ends the wait of earlier failures.
        node.start().unwrap();
        daemon.when("it to be asked", |_| node.calls().list > asked);
    };
    for number in 0..12 {
        let odd = format!("odd-{number}");
        node.list(vec![pod("ns", "p", vec![container("main", vec![devices("nvidia.com/gpu", &[odd])])])]);
        ask(&mut node);
    }
    let discarded = [("source", "pods"), ("reason", "device_id")];
    daemon.when("all of it to be counted", |metrics| {
        metrics.get("warpmeter_source_values_discarded_total", &discarded) >= Some(12.0)
    });
    for number in 0..12 {
        node.behave(Manner::Refuses(tonic::Code::Internal, format!("failure {number}")));
        ask(&mut node);
    }
    daemon.until_status("the last reason", |status| status["sources"].to_string().contains("failure 11"));
    let log = daemon.log();
    let lines = |word: &str| log.lines().filter(|line| line.contains(word)).count();
    assert_eq!(lines("lists what cannot be understood"), 1, "{log}");
    // The health names one of them, as often as its reasons are told.
    assert!(lines("ids cannot be understood") <= 12, "{log}");
    // A change of state and some more.
    assert!((1..=6).contains(&lines("failure ")), "{log}");
}

#[test]
fn a_kubelet_that_hangs_leaves_the_age_of_the_mapping_to_see_and_its_source_goes_down() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let mut node = Kubelet::new().unwrap();
    node.start().unwrap();
    let daemon = Daemon::start(&sim, &kubelet::section(&node));
    let up = |metrics: &Exposition| metrics.get("warpmeter_source_up", &[("source", "pods")]);
    let first = answered(&daemon.when("an answer", |metrics| answered(metrics) > 0.0));
    let next =
        answered(&daemon.when("another that says the same", |metrics| answered(metrics) > first + 1.0));
    node.behave(Manner::Hangs);
    node.start().unwrap();
    // Six refreshes of two seconds.
    let metrics = daemon.when("it to be down", |metrics| up(metrics) == Some(0.0));
    let last = answered(&metrics);
    let fact = metrics.get("warpmeter_source_last_fact_timestamp_seconds", &[("source", "pods")]).unwrap();
    assert!(last >= next && fact > last + 6.0, "{last} {fact}");
    node.behave(Manner::Answers);
    node.start().unwrap();
    daemon.when("it to be well", |metrics| up(metrics) == Some(1.0) && answered(metrics) > last);
}
