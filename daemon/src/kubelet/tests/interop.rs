//! Against a server of another make: `tests/kubelet/interop.sh` starts it and runs this.

use warpmeter_core::fact::{DeviceRef, Replicas};
use warpmeter_core::identity::GpuId;

use super::*;

#[test]
#[ignore = "needs a server: run tests/kubelet/interop.sh"]
fn a_server_of_another_make_is_understood() {
    let socket =
        std::env::var_os("WARPMETER_KUBELET_SOCKET").expect("WARPMETER_KUBELET_SOCKET names a socket");
    let node = Kubelet::new().unwrap();
    let options = KubeletOptions { socket: socket.into(), ..options(&node, Duration::from_secs(10)) };
    let mut source = KubeletSource::new(options);
    let facts = look(&mut source);
    assert_eq!(state(&source), HealthState::Up, "{:?}", source.health());
    let pods = last_pods(&facts).unwrap();
    let gpu = DeviceRef::Gpu(GpuId::new(format!("GPU-{UUID}")));
    let grant = |device, part| Grant { container: "main".into(), device, part };
    let held: Vec<(&str, &[Grant])> = pods.pods.iter().map(|pod| (&*pod.name, &*pod.grants)).collect();
    assert_eq!(
        held,
        [
            ("dra", &[grant(DeviceRef::Minor(3), GrantPart::Whole)][..]),
            ("plugin", &[grant(gpu.clone(), GrantPart::Replica(1))]),
        ]
    );
    assert_eq!(pods.replicas, [Replicas { device: gpu, count: 4 }]);
    assert_eq!(unparsed(&facts), 0);
}
