//! What to ask, where, and how often.

use std::path::PathBuf;
use std::time::Duration;

/// The domain of NVIDIA's own resources, whatever they are renamed to: `nvidia.com/gpu`, `nvidia.com/gpu.shared`,
/// `nvidia.com/mig-1g.5gb`, `nvidia.com/a100`.
const DOMAIN: &str = "nvidia.com/";

/// Where the kubelet is, and what of it is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletOptions {
    /// The socket of its PodResources API. Its directory must be mounted, not the socket, which every kubelet makes
    /// anew when it starts.
    pub socket: PathBuf,
    /// Resources that are GPUs beside those of the domain `nvidia.com/`: names, or prefixes that end with a slash.
    pub resources: Vec<String>,
    /// Where it keeps a directory for each pod, `NAMESPACE_POD_UID`.
    pub pod_logs: PathBuf,
    /// Where it keeps a link for each container, `POD_NAMESPACE_CONTAINER-ID.log`.
    pub container_logs: PathBuf,
    /// How long it may take to answer.
    pub deadline: Duration,
    /// How often it is asked if nothing happens.
    pub refresh: Duration,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            socket: "/var/lib/kubelet/pod-resources/kubelet.sock".into(),
            resources: Vec::new(),
            pod_logs: "/var/log/pods".into(),
            container_logs: "/var/log/containers".into(),
            deadline: Duration::from_secs(2),
            refresh: Duration::from_secs(10),
        }
    }
}

impl KubeletOptions {
    /// Whether devices of `resource` are GPUs.
    pub(super) fn wants(&self, resource: &str) -> bool {
        let named = |wanted: &String| {
            resource == wanted || (wanted.ends_with('/') && resource.starts_with(wanted.as_str()))
        };
        resource.starts_with(DOMAIN) || self.resources.iter().any(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_wanted_by_domain_name_or_prefix() {
        let options = KubeletOptions {
            resources: vec!["aliyun.com/gpu-mem".into(), "gpu.example.com/".into()],
            ..KubeletOptions::default()
        };
        for wanted in
            ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb.shared", "aliyun.com/gpu-mem", "gpu.example.com/h100"]
        {
            assert!(options.wants(wanted), "{wanted}");
        }
        for other in
            ["amd.com/gpu", "aliyun.com/gpu-memory", "nvidia.com", "gpu.example.com", "", "x/nvidia.com/gpu"]
        {
            assert!(!options.wants(other), "{other}");
        }
    }
}
