//! Committed files that must say what the code does, and rules for the catalogue itself.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::sample;
use crate::catalogue::{Kind, Level, Unit, families};
use crate::docs;
use crate::encode::Encoder;

/// Compares a committed file with what it should hold, or rewrites it when `WARPMETER_BLESS=1`.
pub(super) fn committed(path: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("WARPMETER_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, wanted).expect("write the file");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(wanted.lines()).position(|(a, b)| a != b);
    assert!(
        found == wanted,
        "{} differs from line {:?} on. If the change is meant, declare it in the changelog and run:\n\
         WARPMETER_BLESS=1 cargo test -p warpmeter-exporter",
        path.display(),
        differs.map(|line| line + 1),
    );
}

#[test]
fn the_documented_metrics_are_those_of_the_catalogue() {
    committed("../docs/metrics.md", &docs::markdown());
}

#[test]
fn names_and_labels_change_only_where_the_change_is_declared() {
    committed("catalogue.golden", &docs::golden());
}

#[test]
fn the_exposition_of_the_sample_is_as_committed() {
    committed("exposition.golden", &exposition());
}

fn exposition() -> String {
    let text = Encoder::new(Level::Full).encode(&sample::view());
    text.replace(&format!("version=\"{}\"", crate::VERSION), "version=\"0.0.0\"")
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let check = ["check", "metrics"];
    let spawned = Command::new("promtool").args(check).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut promtool) = spawned else {
        eprintln!("skipped: promtool is not on PATH");
        return;
    };
    promtool.stdin.take().unwrap().write_all(exposition().as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_family_follows_the_conventions() {
    let mut names = BTreeSet::new();
    for family in families() {
        let name = family.name;
        assert!(names.insert(name), "{name} is there twice");
        assert!(name.starts_with("warpmeter_"), "{name}");
        assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), family.unit == Unit::Info, "{name}");
        let stem = name.trim_end_matches("_total");
        match family.unit {
            Unit::GpuSeconds | Unit::Seconds => assert!(stem.ends_with("_seconds"), "{name}"),
            Unit::Timestamp => assert!(stem.ends_with("_timestamp_seconds"), "{name}"),
            Unit::BytesPerSecond => assert!(stem.ends_with("_bytes_per_second"), "{name}"),
            Unit::FlopsPerSecond => assert!(stem.ends_with("_flops_per_second"), "{name}"),
            Unit::Bytes => assert!(stem.ends_with("_bytes"), "{name}"),
            Unit::Joules => assert!(stem.ends_with("_joules"), "{name}"),
            Unit::Watts => assert!(stem.ends_with("_watts"), "{name}"),
            Unit::Celsius => assert!(stem.ends_with("_celsius"), "{name}"),
            Unit::Hertz => assert!(stem.ends_with("_hertz"), "{name}"),
            Unit::Ratio => assert!(stem.ends_with("_ratio"), "{name}"),
            Unit::Currency | Unit::Gpus | Unit::Count | Unit::Flag | Unit::Info => {}
        }
        assert!(family.help.ends_with('.') && !family.help.contains(['\n', '\\', '|']), "{name}");
        assert!(!family.labels.iter().any(|label| label.contains("pid") || label.contains("addr")), "{name}");
        assert_eq!(family.unit == Unit::Currency, family.labels.contains(&"currency"), "{name}");
    }
}
