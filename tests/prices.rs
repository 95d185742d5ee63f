//! Prices of a running daemon: from a file that changes, and from the node's labels.

use std::path::Path;

use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::http;
use warpmeter_tests::ledger::assert_conserved;
use warpmeter_tests::sim::Sim;

const TWO_GPUS: &str = "[[gpu]]\nmodel = \"H100\"\ncount = 2";

/// Replaces a file as a whole, so that no half of it is ever read.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

fn csv(price: &str) -> String {
    format!(
        "AssetClass,InstanceIDField,InstanceID,MarketPriceHourly,AsOf,Source\nnode,metadata.name,node-1,{price},2026-11-01,contract\n"
    )
}

fn cost(metrics: &Exposition) -> f64 {
    metrics.sum("warpmeter_gpu_cost_total", &[])
}

fn host(metrics: &Exposition) -> f64 {
    metrics.sum("warpmeter_node_host_cost_total", &[])
}

fn price(metrics: &Exposition) -> Option<f64> {
    metrics.get("warpmeter_gpu_price_per_hour", &[])
}

fn is(price: Option<f64>, wanted: f64) -> bool {
    price.is_some_and(|price| (price - wanted).abs() < 1e-9)
}

#[test]
fn a_price_file_that_changes_is_taken_up_a_bad_one_is_refused_whole_and_a_replay_costs_the_same() {
    let sim = Sim::new(TWO_GPUS);
    let (file, recording, metrics) = (sim.path("prices.csv"), sim.path("run.jsonl"), sim.path("run.prom"));
    replace(&file, &csv("7200"));
    let config = sim.configure(
        http::free_address(),
        &format!("[price]\nfile = {file:?}\nhost_share = 0.25\npower_per_kwh = 0.12\n"),
    );
    let arguments = [
        "record".into(),
        "--config".into(),
        config.into_os_string(),
        "--duration".into(),
        "14s".into(),
        "--metrics".into(),
        metrics.clone().into_os_string(),
        recording.clone().into_os_string(),
    ];
    let running = std::thread::scope(|scope| {
        let run = scope.spawn(|| daemon::run(&sim, arguments));
        std::thread::sleep(std::time::Duration::from_secs(4));
        replace(&file, &(csv("3600") + "node,metadata.name,node-2,free,,\n"));
        std::thread::sleep(std::time::Duration::from_secs(2));
        replace(&file, &csv("1800"));
        run.join().unwrap()
    });
    let log = String::from_utf8_lossy(&running.stderr).into_owned();
    assert!(running.status.success() && log.contains("line 3") && log.contains("\"free\""), "{log}");

    let ran = std::fs::read_to_string(&metrics).unwrap();
    let end = Exposition::parse(&ran).unwrap();
    assert_conserved(&end);
    // A quarter is the host's, and the rest is halved; the price that a bad file had was never in force.
    assert!(is(price(&end), 675.0), "{:?}", price(&end));
    let facts = std::fs::read_to_string(&recording).unwrap();
    let told = facts.lines().filter(|line| line.contains("\"fact\":{\"prices\""));
    assert_eq!(told.count(), 1, "one change of prices was a fact");
    assert_eq!(
        end.get(
            "warpmeter_price_info",
            &[("priced", "gpu"), ("origin", "file"), ("source", "contract"), ("as_of", "2026-11-01")]
        ),
        Some(1.0)
    );
    assert_eq!(end.get("warpmeter_price_table_timestamp_seconds", &[]), Some(1_793_491_200.0));
    // Between what the last and the first price would have made of it.
    let seconds = end.sum("warpmeter_gpu_seconds_total", &[]);
    let (gpus, of_host) = (cost(&end), host(&end));
    assert!(gpus > seconds * 675.0 / 3600.0 && gpus < seconds * 2700.0 / 3600.0, "{gpus} of {seconds} s");
    assert!(of_host > 0.0 && of_host < gpus, "{of_host} beside {gpus}");
    let joules = end.sum("warpmeter_gpu_energy_joules_total", &[]);
    let energy = end.sum("warpmeter_gpu_energy_cost_total", &[("currency", "USD")]);
    assert!(
        joules > 0.0 && (energy - joules * 0.12 / 3_600_000.0).abs() < 1e-12 * joules,
        "{energy} of {joules} J"
    );

    let replayed = daemon::run(&sim, ["replay".into(), recording.into_os_string()]);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    assert!(ran == String::from_utf8(replayed.stdout).unwrap(), "a replay ends in the same bytes");
}

#[test]
fn labels_in_a_file_price_a_node_and_the_costs_of_its_gpus_and_host_grow_by_its_price() {
    let sim = Sim::new(TWO_GPUS);
    let labels = sim.path("labels");
    replace(&labels, "node.kubernetes.io/instance-type=\"Standard_NC80adis_H100_v5\"\n");
    let daemon = Daemon::start(&sim, &format!("[price]\nnode_labels = {labels:?}\nhost_share = 0.1\n"));
    let before = daemon.when("costs", |metrics| cost(metrics) > 0.0 && host(metrics) > 0.0);
    assert!(is(price(&before), 6.282), "{:?}", price(&before));
    let built_in = [("origin", "built_in"), ("source", "Azure eastus"), ("capacity_type", "on-demand")];
    assert_eq!(before.get("warpmeter_price_info", &built_in), Some(1.0));
    assert_eq!(before.get("warpmeter_source_up", &[("source", "prices")]), Some(1.0));

    // A spot node has no price in the table: its cost stops, and its seconds go on.
    replace(
        &labels,
        "node.kubernetes.io/instance-type=\"Standard_NC80adis_H100_v5\"\nkubernetes.azure.com/scalesetpriority=\"spot\"\n",
    );
    let without = daemon.when("no price", |metrics| price(metrics).is_none());
    let seconds = |metrics: &Exposition| metrics.sum("warpmeter_gpu_seconds_total", &[]);
    let (at, paid) = (seconds(&without), cost(&without));
    let later = daemon.when("time without a price", |metrics| seconds(metrics) > at + 6.0);
    assert!(paid > 0.0 && cost(&later) - paid < 2.1 * 6.282 / 3600.0, "at most the window that was open");

    replace(&labels, "nonsense\n");
    let garbage = [("source", "prices"), ("reason", "garbage")];
    daemon.when("the broken file", |metrics| {
        metrics.sum("warpmeter_source_values_discarded_total", &garbage) > 0.5
    });
    assert!(daemon.log().contains("line 1"), "{}", daemon.log());
    assert_conserved(&daemon.scrape());
}

#[test]
fn check_says_what_each_gpu_costs_who_says_so_and_what_would_be_better() {
    let sim = Sim::new(&format!("{TWO_GPUS}\n[[gpu]]\nmodel = \"T4\""));
    let check = |price: &str| {
        let config = sim.configure(http::free_address(), &format!("[price]\n{price}"));
        let output = daemon::run(&sim, ["check".into(), "--config".into(), config.into_os_string()]);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let has = |found: &str, line: &str, remedy: &str| {
        let mut lines = found.lines().skip_while(|one| !one.contains(line));
        assert!(lines.next().is_some(), "{line} in:\n{found}");
        assert!(lines.next().is_some_and(|next| next.contains(remedy)), "{remedy} after {line} in:\n{found}");
    };
    let found = check("H100 = { price = 2.95, as_of = \"2020-02-01\", source = \"contract\" }\n");
    has(
        &found,
        "2 × NVIDIA H100 80GB HBM3: 2.95 USD an hour, from contract (configuration), as of 2020-02-01",
        "[price] H100",
    );
    has(&found, "Tesla T4 has no price", "[price], such as T4 = 2.95");

    let found = check("built_in = \"models\"\n");
    has(
        &found,
        "2 × NVIDIA H100 80GB HBM3: 6.88 USD an hour, from AWS us-east-1 (built-in table), on-demand",
        "list price",
    );

    let found = check("instance_type = \"p5.48xlarge\"\ncapacity_type = \"spot\"\n");
    has(&found, "no spot price of p5.48xlarge is known: set it as node", "[price]");

    let file = sim.path("prices.csv");
    std::fs::write(&file, csv("free") + "gpu,,,1,,\n").unwrap();
    let found = check(&format!("file = {file:?}\ninstance_type = \"p5.48xlarge\"\n"));
    has(&found, "prices.csv: line 2: MarketPriceHourly \"free\"", "mend it");
    has(&found, "prices.csv: line 3: a gpu row needs", "mend it");
    has(&found, "the price file has never been read", "[price]");
}
