//! GPUs of a node: programs on each, and what was counted of them.

use crate::exposition::{Exposition, Labels};
use crate::program::Program;
use crate::sim::Sim;

/// The labels of a GPU, by its place.
pub fn labels(sim: &Sim, index: usize) -> [(&str, &str); 1] {
    [("gpu_uuid", sim.gpus[index].uuid.as_str())]
}

/// A program on each GPU that keeps it busy for four fifths of the time, with kernels that take three fifths of its SMs.
pub fn busy(sim: &Sim) -> Vec<Program> {
    let words = "hog --duty 0.8 --kernel-us 1000 --sm 60";
    sim.gpus.iter().map(|gpu| Program::start(sim, &gpu.uuid, None, words)).collect()
}

/// Seconds of SM activity.
pub fn sm_active(metrics: &Exposition, gpu: Labels<'_>) -> f64 {
    metrics.sum("warpmeter_gpu_sm_active_seconds_total", gpu)
}

/// Seconds of engine activity.
pub fn engine_active(metrics: &Exposition, gpu: Labels<'_>) -> f64 {
    metrics.sum("warpmeter_gpu_engine_active_seconds_total", gpu)
}
