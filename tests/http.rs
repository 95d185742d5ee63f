//! Many scrapers at once.

use std::sync::atomic::{AtomicBool, Ordering};

use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::http;
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::sim::Sim;

/// Scrapers at a time.
const SCRAPERS: usize = 100;

#[test]
fn a_hundred_scrapers_each_get_a_whole_exposition_while_windows_close() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 8");
    let daemon = Daemon::start(&sim, "[window]\nlength = \"200ms\"\n");
    let gpu = &sim.gpus[0].uuid;
    let before = daemon.when("the first window", |metrics| elapsed(metrics, gpu) > 0.0);
    let done = AtomicBool::new(false);
    let scraped: usize = std::thread::scope(|scope| {
        let scrape = || {
            let mut count = 0;
            while count == 0 || !done.load(Ordering::Relaxed) {
                let answer = http::get(daemon.address, "/metrics", "").unwrap();
                assert_eq!(answer.status, 200);
                let metrics = Exposition::parse(answer.text()).unwrap();
                assert_eq!(metrics.all("warpmeter_gpu_up", &[]).count(), 8);
                // Half an exposition of one window and half of the next would not add up.
                assert_conserved(&metrics);
                count += 1;
            }
            count
        };
        let scrapers: Vec<_> = (0..SCRAPERS).map(|_| scope.spawn(scrape)).collect();
        let windows = before.get("warpmeter_windows_total", &[]).unwrap();
        daemon.when("five more windows of each GPU", |metrics| {
            metrics.get("warpmeter_windows_total", &[]).unwrap() >= windows + 40.0
        });
        done.store(true, Ordering::Relaxed);
        scrapers.into_iter().map(|scraper| scraper.join().unwrap()).sum()
    });
    assert!(scraped >= SCRAPERS, "{scraped}");
    assert!(daemon.scrape().sum("warpmeter_source_facts_lost_total", &[]) < 0.5, "no fact is lost");
}
