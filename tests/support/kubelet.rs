//! A daemon that asks a kubelet.

use warpmeter_simkubelet::Kubelet;

/// The sections of a configuration that has this kubelet asked every two seconds.
pub fn section(kubelet: &Kubelet) -> String {
    let [socket, pods, containers] = [kubelet.socket(), kubelet.pod_logs(), kubelet.container_logs()]
        .map(|path| path.display().to_string());
    format!(
        "[pods]\nsource = \"kubelet\"\n[kubelet]\nsocket = {socket:?}\npod_logs = {pods:?}\n\
         container_logs = {containers:?}\nrefresh = \"2s\"\n"
    )
}
