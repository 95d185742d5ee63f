//! The sharing matrix.

use warpmeter_sharing::matrix::cases;
use warpmeter_sharing::outcome::{Given, outcome};
use warpmeter_sharing::run::run;

#[test]
fn look() {
    for case in cases() {
        let clock = std::time::Instant::now();
        let run = run(&case);
        println!("== {} ({} ms, {} facts)", case.name, clock.elapsed().as_millis(), run.facts.len());
        for given in [Given::Driver, Given::Probes, Given::Nothing] {
            let o = outcome(&case, &run, given, |_| {});
            println!("-- {given:?} conservation {} elapsed {:?}", o.view.conservation_error, o.view.gpus.iter().map(|g| g.elapsed).collect::<Vec<_>>());
            for d in 0..o.ran.len() {
                println!("   device {d}: ran {} nobody {} evidence {:?}", o.ran[d] / 1000000, o.nobodys[d] / 1000000, o.evidence[d].map(|e| e / 1000000));
                for ((_, whose), part) in o.parts.iter().filter(|((n, _), _)| *n == d) {
                    let ms = |(a, b): (u64, u64)| format!("{}/{}", a / 1000000, b / 1000000);
                    println!("      {whose:?} used {} borrowed {} contended {}", ms(part.used), ms(part.borrowed), ms(part.contended));
                }
            }
        }
    }
}
