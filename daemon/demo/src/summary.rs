//! The table: where each pod's device time goes.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::cast::{CAST, Place, Role};
use crate::exposition::Series;
use crate::node::SimulatedNode;

/// A pod's figures in seconds and money, from the daemon's metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) used: f64,
    pub(crate) active: f64,
    idle: f64,
    stalled: f64,
    unknown: f64,
    cost: f64,
    wasted: f64,
    cause: String,
}

/// The figures of every pod, by name.
pub(crate) fn figures(metrics: &[Series]) -> BTreeMap<String, Figures> {
    let mut pods: BTreeMap<String, Figures> = BTreeMap::new();
    let mut causes: BTreeMap<String, (f64, String)> = BTreeMap::new();
    for series in metrics.iter().filter(|series| !series.label("pod").is_empty()) {
        let name = series.label("pod").to_owned();
        let figures = pods.entry(name.clone()).or_default();
        match series.name.as_str() {
            "warpmeter_pod_gpu_seconds_total" => {
                match series.label("state") {
                    "active" => figures.active += series.value,
                    "idle" => figures.idle += series.value,
                    "stalled" => figures.stalled += series.value,
                    _ => figures.unknown += series.value,
                }
                let leading = causes.entry(name).or_default();
                if series.label("state") != "active" && series.value > leading.0 {
                    *leading = (series.value, format!("{}/{}", series.label("state"), series.label("cause")));
                }
            }
            "warpmeter_pod_gpu_used_seconds_total" => figures.used += series.value,
            "warpmeter_pod_cost_total" => {
                figures.cost += series.value;
                if series.label("state") != "active" {
                    figures.wasted += series.value;
                }
            }
            _ => {}
        }
    }
    for (name, (_, cause)) in causes {
        pods.entry(name).or_default().cause = cause;
    }
    pods
}

/// One line a pod. At the end, what each used over its whole life is taken from later metrics, and what it truly used
/// stands beside it.
pub(crate) fn table(metrics: &[Series], end: Option<(&[Series], &BTreeMap<String, f64>)>) -> String {
    let pods = figures(metrics);
    let last = end.map(|(metrics, _)| self::figures(metrics)).unwrap_or_default();
    let mut text = String::new();
    let truth_head = if end.is_some() { "  true s   error" } else { "" };
    let head =
        "pod                     device           held s  active stalled    idle unknown    cost $   waste $";
    line(&mut text, &format!("{head}  used s{truth_head}  not active, mostly"));
    for role in &CAST {
        let Some(figures) = pods.get(role.name) else { continue };
        let used = last.get(role.name).unwrap_or(figures).used;
        let held = figures.active + figures.idle + figures.stalled + figures.unknown;
        let share = |amount: f64| if held > 0.0 { 100.0 * amount / held } else { 0.0 };
        let mut row = format!(
            "{:<23} {:<15} {held:>7.2} {:>6.1}% {:>6.1}% {:>6.1}% {:>6.1}% {:>9.5} {:>9.5} {:>7.2}",
            format!("{}/{}", role.namespace, role.name),
            device(role),
            share(figures.active),
            share(figures.stalled),
            share(figures.idle),
            share(figures.unknown),
            figures.cost,
            figures.wasted,
            used,
        );
        if let Some((_, truth)) = end {
            row.push_str(&compared(used, truth.get(role.name).copied().unwrap_or(0.0)));
        }
        line(&mut text, &format!("{row}  {}", figures.cause));
    }
    text
}

/// One line a device, for a node whose pods cannot be told apart. With `truth`, by UUID of the device, as above.
pub(crate) fn devices(
    metrics: &[Series],
    simulated: &SimulatedNode,
    truth: Option<&BTreeMap<String, f64>>,
) -> String {
    let mut text = String::new();
    let truth_head = if truth.is_some() { "  true s   error" } else { "" };
    line(
        &mut text,
        &format!("device                                          used s   idle s unknown s{truth_head}"),
    );
    for series in metrics.iter().filter(|series| series.name == "warpmeter_gpu_used_seconds_total") {
        let (gpu, mig) = (series.label("gpu_uuid"), series.label("mig"));
        let device = if mig.is_empty() { gpu } else { mig };
        let of = |state: &str| -> f64 {
            let same = |other: &&Series| other.label("gpu_uuid") == gpu && other.label("mig") == mig;
            let states =
                metrics.iter().filter(|other| other.name == "warpmeter_gpu_seconds_total").filter(same);
            states.filter(|other| other.label("state") == state).map(|other| other.value).sum()
        };
        let name =
            simulated.index(gpu).map_or_else(|| device.to_owned(), |index| format!("GPU {index} {device}"));
        let mut row = format!("{name:<47} {:>6.2} {:>8.2} {:>9.2}", series.value, of("idle"), of("unknown"));
        if let Some(truth) = truth {
            let true_use = truth.get(device).copied().unwrap_or(0.0);
            row.push_str(&compared(series.value, true_use));
        }
        line(&mut text, &row);
    }
    text
}

/// What was truly used, and by how much the measurement is off.
fn compared(used: f64, true_use: f64) -> String {
    // A single kernel is too little to speak of its percentage.
    let error =
        if true_use >= 0.05 { format!("{:+.1}%", 100.0 * (used / true_use - 1.0)) } else { "-".into() };
    format!(" {true_use:>7.2} {error:>7}")
}

/// What the node as a whole did.
pub(crate) fn node(metrics: &[Series]) -> String {
    let mut states: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for series in metrics {
        match series.name.as_str() {
            "warpmeter_gpu_seconds_total" => {
                states.entry(series.label("state")).or_default().0 += series.value;
            }
            "warpmeter_gpu_cost_total" => states.entry(series.label("state")).or_default().1 += series.value,
            _ => {}
        }
    }
    let total: f64 = states.values().map(|(seconds, _)| seconds).sum();
    let mut text = String::new();
    let parts: Vec<String> = states
        .iter()
        .filter(|(_, (seconds, _))| *seconds > 0.0)
        .map(|(state, (seconds, cost))| {
            format!("{state} {:.0}% (${cost:.4})", 100.0 * seconds / total.max(1e-9))
        })
        .collect();
    line(&mut text, &format!("node: {total:.1} GPU seconds: {}", parts.join(", ")));
    let errors: Vec<f64> = metrics
        .iter()
        .filter(|series| series.name == "warpmeter_conservation_error_seconds")
        .map(|series| series.value)
        .collect();
    if let [error] = errors[..] {
        line(&mut text, &format!("conservation error: {error}"));
    }
    text
}

fn device(role: &Role) -> String {
    match role.place {
        Place::Gpu(index) => format!("GPU {index}"),
        Place::Mig(index, instance) => format!("GPU {index} MIG {instance}"),
        Place::Replica(index, replica) => format!("GPU {index} replica {replica}"),
    }
}

fn line(text: &mut String, row: &str) {
    // Writing to a string does not fail.
    if writeln!(text, "{row}").is_err() {
        text.push('\n');
    }
}
