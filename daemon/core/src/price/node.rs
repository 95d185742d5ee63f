//! What of a node decides its price.

use std::collections::BTreeMap;

use super::Capacity;

/// The label of the instance type, and its older form.
const INSTANCE_TYPE: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];
/// The label of the region, and its older form.
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];
/// Labels whose value names the capacity type: Karpenter's, EKS' and AKS' own.
const CAPACITY: [&str; 3] =
    ["karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType", "kubernetes.azure.com/scalesetpriority"];
/// Labels that are true on a node which can be taken away: GKE's.
const PREEMPTIBLE: [&str; 2] = ["cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible"];

/// What is known of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its `spec.providerID`; empty if that is not known.
    pub provider_id: String,
    /// Its labels; none while they are awaited, empty if nobody says.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its instance type, if the configuration says; it goes before the label.
    pub instance_type: Option<String>,
    /// How it is paid for, if the configuration says; it goes before the labels.
    pub capacity: Option<Capacity>,
}

impl NodeFacts {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let value = self.labels.as_ref()?.get(key)?;
        (!value.is_empty()).then_some(value)
    }

    /// The instance type.
    pub fn instance_type(&self) -> Option<&str> {
        self.instance_type.as_deref().or_else(|| INSTANCE_TYPE.iter().find_map(|key| self.label(key)))
    }

    /// The region.
    pub fn region(&self) -> Option<&str> {
        REGION.iter().find_map(|key| self.label(key))
    }

    /// How the node is paid for, as far as anybody says.
    pub fn capacity(&self) -> Option<Capacity> {
        self.capacity.or_else(|| {
            let truth = |key: &&str| self.label(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
            let preemptible = PREEMPTIBLE.iter().any(truth).then_some(Capacity::Spot);
            preemptible.or_else(|| CAPACITY.iter().find_map(|key| named(self.label(key)?)))
        })
    }

    /// Whether labels that decide the price are still awaited.
    pub fn awaited(&self) -> bool {
        self.labels.is_none() && (self.instance_type.is_none() || self.capacity.is_none())
    }
}

/// The type that a label's value names: Azure calls what is not spot `regular`.
fn named(value: &str) -> Option<Capacity> {
    if value.eq_ignore_ascii_case("regular") { Some(Capacity::OnDemand) } else { Capacity::parse(value) }
}
