//! Scenarios: what is accepted, what is refused and how, and faults in their time.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use tempfile::TempDir;
use warpmeter_simgpu::{Error, Fault, FaultKind, Model, Node, Scenario, hash};

fn refusal(text: &str) -> String {
    let dir = TempDir::new().unwrap();
    match Scenario::parse(text).and_then(|s| warpmeter_simgpu::create(dir.path(), &s)) {
        Ok(()) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn unknown_keys_are_refused_by_name() {
    assert!(refusal("colour = 1").contains("colour"));
    assert!(refusal("[[gpu]]\nmodel = \"H100\"\nmemroy_mib = 1").contains("memroy_mib"));
    assert!(refusal("[[gpu]]\nmodel = \"V100\"").contains("V100"));
    assert!(refusal("[[fault]]\nkind = \"meltdown\"").contains("meltdown"));
}

#[test]
fn impossible_layouts_are_refused() {
    let mig = |model: &str, mig: &str| refusal(&format!("[[gpu]]\nmodel = \"{model}\"\nmig = [{mig}]"));
    assert!(mig("T4", "{profile = \"1g.10gb\"}").contains("has no MIG"));
    assert!(mig("H100", "{profile = \"5g.50gb\"}").contains("5g.50gb"));
    let two = "{profile = \"4g.40gb\"}, {profile = \"4g.40gb\"}";
    assert!(mig("H100", two).contains("no place"));
    let eight = ["{profile = \"2g.20gb\"}"; 3].join(",") + ",{profile = \"1g.10gb\"},{profile = \"1g.10gb\"}";
    assert!(mig("H100", &eight).contains("8 of 7"));
}

#[test]
fn faults_say_what_they_lack() {
    assert!(refusal("[[gpu]]\nmodel = \"T4\"\n[[fault]]\nkind = \"xid\"").contains("`code` is missing"));
    assert!(refusal("[[fault]]\nkind = \"lost\"\ngpu = 3").contains("no such device"));
    assert!(refusal("[[fault]]\nkind = \"lost\"\ncode = 3").contains("does not apply"));
    assert!(matches!(Fault::from_words(["lost"]), Err(Error::Invalid(_))));
}

#[test]
fn identities_are_stable_distinct_and_depend_on_the_seed() {
    let read = |seed: u64| {
        let dir = TempDir::new().unwrap();
        let text =
            format!("seed = {seed}\n[[gpu]]\nmodel = \"A100\"\ncount = 3\nmig = [{{profile = \"1g.10gb\"}}]");
        warpmeter_simgpu::create(dir.path(), &Scenario::parse(&text).unwrap()).unwrap();
        let node = Node::open(dir.path()).unwrap();
        let guard = node.lock();
        let gpus = guard.device.iter().take(3).map(|d| d.uuid.as_str().to_owned());
        let migs = guard.engine.iter().take(3).map(|e| e.uuid.as_str().to_owned());
        gpus.chain(migs).collect::<Vec<_>>()
    };
    let first = read(1);
    assert_eq!(first, read(1));
    let mut all: Vec<String> = first.into_iter().chain(read(2)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 12);
}

#[test]
fn a_fault_holds_between_its_times_and_on_its_device() {
    let text = "[[gpu]]\nmodel = \"T4\"\ncount = 2\n\
                [[fault]]\nkind = \"lost\"\ngpu = 1\nat_s = 2\nfor_s = 3\n\
                [[fault]]\nkind = \"not_supported\"\nfunction = \"nvmlDeviceGetSerial\"";
    let dir = TempDir::new().unwrap();
    warpmeter_simgpu::create(dir.path(), &Scenario::parse(text).unwrap()).unwrap();
    let node = Node::open(dir.path()).unwrap();
    let guard = node.lock();
    let lost = |device, second: u64| {
        guard.faulty(FaultKind::Lost, Some(device), guard.epoch + second * 1_000_000_000).is_some()
    };
    assert_eq!([1, 2, 4, 5].map(|s| lost(1, s)), [false, true, true, false]);
    assert!(!lost(0, 3));
    let now = guard.epoch;
    assert!(guard.faulty_for(FaultKind::NotSupported, Some(0), hash("nvmlDeviceGetSerial"), now));
    assert!(!guard.faulty_for(FaultKind::NotSupported, Some(0), hash("nvmlDeviceGetName"), now));
}

#[test]
fn a_node_has_its_device_files_and_refuses_other_versions() {
    let dir = TempDir::new().unwrap();
    warpmeter_simgpu::create(dir.path(), &Scenario::of(Model::T4, 2)).unwrap();
    for name in ["nvidiactl", "nvidia0", "nvidia1"] {
        assert!(dir.path().join("dev").join(name).is_file());
    }
    std::fs::write(dir.path().join("state"), "old").unwrap();
    assert!(matches!(Node::open(dir.path()), Err(Error::Version(_))));
}
