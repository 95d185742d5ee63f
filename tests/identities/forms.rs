//! The forms as a kind: what can be put together from their parts.

use warpmeter_simkubelet::{container, devices, pod};
use warpmeter_tests::ledger::assert_closed;
use warpmeter_tests::paper::{Device, Paper, uuid};

use super::{FIRST, LARGE, MIDDLE, SECOND, SMALL, gpu_id, mig_id, unparsed};

/// Every base with every suffix: one pod each, all in one answer.
#[test]
fn every_suffix_belongs_to_some_bases_and_makes_an_unknown_id_of_the_others() {
    let bases: [(String, Device, &[&str]); 7] = [
        (gpu_id(0), FIRST, &["::", "-", "-_-"]),
        (uuid(0), FIRST, &["::", "-_-"]),
        (mig_id(0), LARGE, &["::"]),
        (format!("MIG-{}/7/0", gpu_id(2)), MIDDLE, &["::"]),
        ("nvidia0".into(), SECOND, &["::", "/vgpu"]),
        ("nvidia2/gi12".into(), SMALL, &["::", "/vgpu"]),
        ("tegra".into(), FIRST, &[]),
    ];
    let mut node = Paper::new();
    let (mut pods, mut expected, mut unknown) = (Vec::new(), Vec::new(), 0.0);
    for (base, device, suffixes) in &bases {
        for suffix in ["", "::", "-", "-_-", "/vgpu"] {
            let numbers = ["", "0", "5", "x", "+1", "99999999999"];
            // Digits right behind a base would make another base of it.
            for number in if suffix.is_empty() { &numbers[..1] } else { &numbers[..] } {
                let id = format!("{base}{suffix}{number}");
                let name = format!("pod-{}", pods.len());
                let uid = format!("uid-{}", pods.len());
                node.kubelet.log("n", &name, &uid, &[]).unwrap();
                pods.push(pod("n", &name, vec![container("main", vec![devices("nvidia.com/gpu", &[&id])])]));
                let plain = suffix.is_empty() || suffix == "::";
                let known = match *number {
                    "" => !suffixes.is_empty() && plain,
                    "0" | "5" => suffixes.contains(&suffix),
                    _ => false,
                };
                // Units of memory are nobody's where nothing says whose they are: of no unknown form all the same.
                let loose = known && suffix == "-_-";
                unknown += f64::from(u8::from(!known));
                expected.push((name, id, (known && !loose).then_some(*device)));
            }
        }
    }
    node.kubelet.list(pods);
    node.ask();
    node.pass(1, &[]);
    let metrics = node.metrics();
    for (name, id, device) in expected {
        let of = [("pod", &*name)];
        let series: Vec<_> = metrics.all("warpmeter_pod_allocated_gpus", &of).collect();
        let found: Vec<(&str, &str)> =
            series.iter().map(|series| (series.label("gpu_uuid"), series.label("mig"))).collect();
        let wanted: Vec<_> = device.map(|device| node.labels(device)).into_iter().collect();
        let wanted: Vec<(&str, &str)> = wanted.iter().map(|[gpu, mig]| (&*gpu.1, &*mig.1)).collect();
        assert_eq!(found, wanted, "{id}");
    }
    assert!((unparsed(&metrics) - unknown).abs() < 0.5, "{} and not {unknown}", unparsed(&metrics));
    assert_closed(&metrics);
}
