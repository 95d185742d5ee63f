//! How a value becomes series: whose they are, and what is nobody's.

use std::collections::BTreeSet;

use warpmeter_core::identity::DeviceId;

use super::window::{Device, Gpu, Pod};
use crate::rows::Rows;

pub(super) const LABELS: &[&str] = &[
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_PROFILE",
    "GPU_I_ID",
    "Hostname",
    "DCGM_FI_DRIVER_VERSION",
    "container",
    "namespace",
    "pod",
    "pod_uid",
];

/// Collects the series of one family.
#[derive(Debug)]
pub(super) struct Series<'a> {
    rows: Rows<'a>,
    /// Devices of which a part was nobody's before.
    remainders: &'a mut BTreeSet<DeviceId>,
}

impl<'a> Series<'a> {
    pub(super) fn new(rows: Rows<'a>, remainders: &'a mut BTreeSet<DeviceId>) -> Self {
        Self { rows, remainders }
    }

    pub(super) fn into_rows(self) -> Rows<'a> {
        self.rows
    }

    pub(super) fn push(
        &mut self,
        gpu: &Gpu<'_>,
        device: Option<&Device<'_>>,
        pod: Option<&Pod<'_>>,
        value: f64,
    ) {
        let instance = device.and_then(|device| Some((device.view.instance.as_ref()?, device)));
        let (profile, id) =
            instance.map_or(("", ""), |(instance, device)| (&instance.profile, &device.instance));
        let [container, namespace, name, uid] =
            pod.map_or([""; 4], |pod| [pod.container, pod.namespace, pod.name, pod.uid]);
        let of = &gpu.view.gpu;
        let values = [
            &gpu.index,
            of.id.as_str(),
            &of.pci_bus_id,
            &gpu.file,
            &of.model,
            profile,
            id,
            gpu.node,
            gpu.driver,
            container,
            namespace,
            name,
            uid,
        ];
        self.rows.push(&values, value);
    }

    /// A value that no pod has a part of: the pod's that holds the whole device, else nobody's.
    pub(super) fn undivided(&mut self, gpu: &Gpu<'_>, device: &Device<'_>, value: Option<f64>) {
        if let Some(value) = value {
            self.push(gpu, Some(device), device.holder(), value);
        }
    }

    /// The pods' parts of `total`, and what is left of it.
    ///
    /// The rest has a series if there is any, or was, or if it is not plain whose the device is. A total that is
    /// not known has parts, but no rest.
    pub(super) fn divided(
        &mut self,
        gpu: &Gpu<'_>,
        device: &Device<'_>,
        total: Option<u64>,
        part: impl Fn(&Pod<'_>) -> Option<u64>,
        value: impl Fn(u64) -> f64,
    ) {
        let (mut rest, mut parts) = (total, 0_usize);
        for pod in device.live() {
            if let Some(mut amount) = part(pod) {
                // Of what the device does not have, nobody can have a part.
                amount = rest.map_or(amount, |rest| amount.min(rest));
                rest = rest.map(|rest| rest - amount);
                parts += 1;
                self.push(gpu, Some(device), Some(pod), value(amount));
            }
        }
        if let Some(rest) = rest {
            self.rest(gpu, Some(device), rest, parts == 1, value);
        }
    }

    /// What is nobody's of a device's value, or of the board's. `alone`: whether it is plain whose the device is.
    pub(super) fn rest(
        &mut self,
        gpu: &Gpu<'_>,
        device: Option<&Device<'_>>,
        rest: u64,
        alone: bool,
        value: impl Fn(u64) -> f64,
    ) {
        let board = || DeviceId { gpu: gpu.view.gpu.id.clone(), mig: None };
        let id = device.map_or_else(board, |device| device.view.id.clone());
        if rest > 0 || !alone {
            self.remainders.insert(id.clone());
        }
        if self.remainders.contains(&id) {
            self.push(gpu, device, None, value(rest));
        }
    }
}
