//! What is read of a page, and whose it is.

use proptest::prelude::*;
use warpmeter_core::ratio::Ppb;

use super::super::figures::Figures;
use super::super::page::{Field, Place, Shown, parse};
use super::*;

fn all() -> [Gpu; 3] {
    [gpu(T4, Some(Counter::Dcgm)), gpu(A100, Some(Counter::Dcgm)), mig(MIG, &[(1, 0), (5, 0)])]
}

#[test]
fn a_real_page_gives_each_device_its_values() {
    let page = parse(PAGE.as_bytes());
    assert_eq!((page.devices.len(), page.unread), (4, 0));
    let shown = |gpu: &str, instance, field: Field| {
        page.devices[&Place { gpu: gpu.to_owned(), instance }][field as usize]
    };
    assert_eq!(
        shown(T4, None, Field::SmActive),
        Shown::Value(0.312_204),
        "two pods show the device's once each"
    );
    assert_eq!(shown(A100, None, Field::PcieReceive), Shown::Value(5_120_448_813.0));
    assert_eq!(shown(MIG, Some(1), Field::Dram), Shown::Value(0.099_172));
    assert_eq!(shown(MIG, Some(5), Field::PcieReceive), Shown::Nothing);
    assert_says(&Desk::said(PAGE, &all()), HealthState::Up, &[]);
}

#[test]
fn an_instance_is_the_one_with_its_gpu_instances_id() {
    let mut desk = Desk::new(&all(), 30 * SECOND, 5 * SECOND);
    let later = PAGE.replace("0.201882", "0.211882").replace("0.312204", "0.352204");
    for (second, page) in [(0, PAGE), (5, PAGE), (30, &later), (35, &later), (60, PAGE), (65, PAGE)] {
        for look in [0, 1] {
            desk.look(page, (1000 + second + look * 5) * SECOND);
        }
    }
    // Of two exchanges, the first has no known beginning.
    let found = desk.averages();
    assert!(found.is_empty(), "looks were too far apart: {found:?}");
    for second in (2000..2100).step_by(5) {
        desk.look(if (2030..2060).contains(&second) { &later } else { PAGE }, second * SECOND);
    }
    let found = desk.averages();
    let of = |gpu: &str| found.iter().find(|it| it.device.gpu.as_str() == gpu).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(of(MIG).device.mig, Some(MigId::new("MIG-1-0")));
    assert_eq!(of(MIG).means.sm_active, Some(Ppb::new(201_882_000).unwrap()));
    assert_eq!((of(MIG).means.pcie_receive, of(T4).means.pcie_receive), (None, Some(733_190_221)));
}

#[test]
fn an_instance_that_cannot_be_placed_is_refused_and_named() {
    let with = |instances: &[(u32, u32)]| Desk::said(PAGE, &[mig(MIG, instances)]);
    assert_says(
        &with(&[(1, 0), (5, 0), (5, 1)]),
        HealthState::Degraded,
        &["/5 has several compute instances"],
    );
    assert_says(
        &with(&[(1, 0), (9, 0)]),
        HealthState::Degraded,
        &["/5 is not on this node", "nothing of MIG-9-0"],
    );
    let whole = gpu(MIG, Some(Counter::Dcgm));
    assert_says(&Desk::said(PAGE, &[whole]), HealthState::Degraded, &["/1", "/5 is not on this node"]);
}

#[test]
fn a_gpu_with_figures_of_its_own_keeps_them_and_the_exporter_is_said_not_to_be_needed() {
    let hopper = gpu(A100, Some(Counter::GpmCycles));
    let off = Desk::said(PAGE, &[hopper.clone(), gpu(T4, Some(Counter::PmSampling))]);
    assert_says(&off, HealthState::Off, &["no GPU needs", "1 with gpm_cycles, 1 with pm_sampling"]);
    let some = Desk::said(PAGE, &[hopper, gpu(T4, Some(Counter::Dcgm))]);
    assert_says(&some, HealthState::Up, &["not needed for all GPUs: 1 with gpm_cycles"]);
}

#[test]
fn the_exporter_of_another_node_is_recognised() {
    let others = [gpu("GPU-00000000-0000-0000-0000-000000000000", Some(Counter::Dcgm))];
    assert_says(
        &Desk::said(PAGE, &others),
        HealthState::Degraded,
        &["of another", "internalTrafficPolicy: Local"],
    );
    assert_says(
        &Desk::said("# nothing\n", &others),
        HealthState::Degraded,
        &["nothing of GPU-0000", "--devices"],
    );
}

#[test]
fn fields_that_are_commented_out_or_blank_are_said_to_be() {
    let without = PAGE.lines().filter(|line| !line.contains("PROF_SM_")).collect::<Vec<_>>().join("\n");
    assert_says(
        &Desk::said(&without, &all()),
        HealthState::Degraded,
        &["commented out by default", T4, "MIG-1-0"],
    );
    let blank = PAGE.replace("} 0.312204", "} 9223372036854775794");
    let said = Desk::said(&blank, &all());
    assert_says(&said, HealthState::Degraded, &["no value of DCGM_FI_PROF_SM_ACTIVE", T4, "--resume"]);
    assert!(!said.reason.contains(A100), "{}", said.reason);
}

#[test]
fn pods_with_different_values_of_one_device_are_not_a_device() {
    let divided = PAGE.replacen("} 0.312204", "} 0.1", 1);
    assert_says(
        &Desk::said(&divided, &all()),
        HealthState::Degraded,
        &["one field of", T4, "several values"],
    );
}

#[test]
fn lines_that_cannot_be_read_cost_themselves_and_are_counted() {
    let bad = [
        "DCGM_FI_PROF_SM_ACTIVE 0.5",
        "DCGM_FI_PROF_SM_ACTIVE{} 0.5",
        "DCGM_FI_PROF_SM_ACTIVE{UUID=\"\"} 0.5",
        "DCGM_FI_PROF_SM_ACTIVE{UUID=\"GPU-1\" 0.5",
        "DCGM_FI_PROF_SM_ACTIVE{UUID=\"GPU-1} 0.5",
        "DCGM_FI_PROF_SM_ACTIVE{UUID=\"GPU-1\"} x",
        "DCGM_FI_PROF_SM_ACTIVE{UUID=\"GPU-1\"}",
        "DCGM_FI_PROF_SM_ACTIVE{UUID=\"GPU-1\"} 0.5 1 2",
        "DCGM_FI_PROF_SM_ACTIVE{UUID=\"GPU-1\",GPU_I_ID=\"5/0\"} 0.5",
        "DCGM_FI_PROF_SM_ACTIVE{UUID=\"GPU-1\",modelName=\"A \"B\" C\"} 0.5",
    ];
    let page = parse(format!("{}\n{PAGE}", bad.join("\n")).as_bytes());
    assert_eq!((page.devices.len(), page.unread), (4, bad.len() as u64));
    let good = [
        "DCGM_FI_PROF_SM_ACTIVE {UUID=\"GPU-1\"} 0.5",
        "DCGM_FI_PROF_SM_ACTIVE{ uuid = \"GPU-1\" , pod=\"a\\\"},\\\\\" } 0.5 1700000000000",
        "DCGM_FI_PROF_SM_UTIL_RATIO{UUID=\"GPU-1\",GPU_I_ID=\"\"} 5e-1\r",
    ];
    let page = parse(good.join("\n").as_bytes());
    let place = Place { gpu: "GPU-1".into(), instance: None };
    assert_eq!(page.devices[&place][Field::SmActive as usize], Shown::Value(0.5));
    assert_eq!((page.devices.len(), page.unread), (1, 0));
}

#[test]
fn a_page_of_endless_devices_or_lines_is_bounded() {
    let line = |n: u32| format!("DCGM_FI_PROF_SM_ACTIVE{{UUID=\"GPU-{n}\"}} 0.5\n");
    let page = parse((0..5000).map(line).collect::<String>().as_bytes());
    assert_eq!((page.devices.len(), page.unread), (1024, 5000 - 1024));
    let long = format!("DCGM_FI_PROF_SM_ACTIVE{{UUID=\"GPU-1\",x=\"{}\"}} 0.5", "y".repeat(1 << 20));
    assert_eq!(parse(long.as_bytes()).unread, 1);
}

proptest! {
    #[test]
    fn whatever_the_bytes_figures_are_in_range(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        lines in prop::collection::vec("DCGM_FI_PROF_(SM_ACTIVE|SM_OCCUPANCY|PCIE_RX_BYTES)\\{(UUID=\"G\"|GPU_I_ID=\"[0-9/]{0,3}\"|[,={}\" \\\\])*\\} ?(NaN|[+-]?Inf|-?[0-9.e+]{1,12})( [0-9]{1,4})?", 0..20),
    ) {
        let text = [lines.join("\n").into_bytes(), bytes].concat();
        for shown in parse(&text).devices.values() {
            let (figures, _) = Figures::of(shown);
            let _: Option<Ppb> = figures.means.sm_active;
            prop_assert!(figures.means.pcie_receive.is_none_or(|rate| rate <= 1_000_000_000_000));
        }
        Desk::said(&String::from_utf8_lossy(&text), &all());
    }

    #[test]
    fn a_label_with_any_text_is_passed_over(text in any::<String>(), ratio in 0..=1_000_000_u32) {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let line = format!("DCGM_FI_PROF_SM_ACTIVE{{pod=\"{escaped}\",UUID=\"GPU-1\",x=\"{escaped}\"}} {ratio}e-6");
        let page = parse(line.as_bytes());
        let shown = page.devices[&Place { gpu: "GPU-1".into(), instance: None }];
        prop_assert_eq!(Figures::of(&shown).0.means.sm_active.map(Ppb::parts), Some(ratio * 1000));
    }
}
