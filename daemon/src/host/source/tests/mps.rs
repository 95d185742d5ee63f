//! What is reported of processes of MPS.

use warpmeter_core::fact::{Fact, Mps, Process};
use warpmeter_core::ratio::Ppb;

use super::tree::*;

fn with(mps: Mps, fact: Fact) -> Fact {
    let Fact::Process(process) = fact else { panic!("no process") };
    Fact::Process(Process { mps: Some(mps), ..process })
}

#[test]
fn an_mps_server_is_one_by_its_name() {
    let mut tree = Tree::new();
    tree.put(100, OLD, IN_UNIT);
    tree.write(100, "stat", stat(100, OLD, 'S', 0, 1).replace(NAME, "nvidia-cuda-mps"));
    let known = called("nvidia-cuda-mps", process(100, OLD, unit(), opened(false, &[])));
    assert_eq!(tree.round(&[100]), [with(Mps::Server, known)]);
    assert_eq!(tree.rounds(30, &[100]), []);
}

#[test]
fn the_limit_of_a_clients_threads_is_read_of_those_that_have_a_gpu_open() {
    let environment = "TOKEN=secret\0CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\0";
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.open(100, 3, "/dev/nvidia0");
    tree.write(100, "environ", environment);
    tree.put(101, OLD, &in_pod());
    tree.write(101, "environ", environment);
    let client = with(Mps::Client(Ppb::percent(30).unwrap()), process(100, OLD, pod(), opened(false, &[0])));
    assert_eq!(tree.round(&[]), [client, process(101, OLD, pod(), opened(false, &[]))]);
}
