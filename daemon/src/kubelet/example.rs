//! One of the device ids that were not understood, for people: which, and where it is.

use std::fmt;

/// How much is shown of an id or a resource.
const SHOWN: usize = 80;
/// No character is longer than four bytes.
const KEPT: usize = 4 * SHOWN;

/// An id where it was found. Without a pod it is only offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found<'a> {
    /// The id.
    pub id: &'a [u8],
    /// Its resource, or the driver of its claim.
    pub resource: &'a [u8],
    /// The namespace of the pod that holds it.
    pub namespace: &'a [u8],
    /// That pod.
    pub pod: &'a [u8],
    /// The container that holds it.
    pub container: &'a [u8],
}

impl Found<'_> {
    /// The least is shown, whatever their order: an empty id tells nothing, and one that is held costs somebody.
    fn rank(&self) -> (bool, bool, Self) {
        (self.id.is_empty(), self.pod.is_empty(), *self)
    }
}

/// The one that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Example([Vec<u8>; 5]);

impl Example {
    /// Keeps the one that is to be shown of two.
    pub(super) fn keep(kept: &mut Option<Self>, found: Found<'_>) {
        let cut = |bytes: &'_ [u8]| bytes.len().min(KEPT);
        let found = Found {
            id: &found.id[..cut(found.id)],
            resource: &found.resource[..cut(found.resource)],
            ..found
        };
        if kept.as_ref().is_none_or(|kept| found.rank() < kept.found().rank()) {
            let Found { id, resource, namespace, pod, container } = found;
            *kept = Some(Self([id, resource, namespace, pod, container].map(<[u8]>::to_vec)));
        }
    }

    fn found(&self) -> Found<'_> {
        let [id, resource, namespace, pod, container] = &self.0;
        Found { id, resource, namespace, pod, container }
    }
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [id, resource, namespace, pod, container] = &self.0;
        write!(f, "{:?} of {:?}", shown(id), shown(resource))?;
        if pod.is_empty() {
            return f.write_str(", which nobody holds");
        }
        let [namespace, pod] = [namespace, pod].map(|name| String::from_utf8_lossy(name));
        let container = String::from_utf8_lossy(container);
        write!(f, ", which container {container:?} of pod {:?} holds", format!("{namespace}/{pod}"))
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_shown_is_held_and_not_empty_if_any_is_and_the_same_in_every_order() {
        let held = |id| Found { id, resource: b"r", namespace: b"ns", pod: b"p", container: b"c" };
        let offered = |id| Found { id, resource: b"r", ..Found::default() };
        let mut all = [held(b""), offered(b"a"), held(b"x\n"), held(b"y"), offered(b"")];
        for _ in 0..all.len() {
            all.rotate_left(1);
            let mut kept = None;
            for found in &all {
                Example::keep(&mut kept, *found);
            }
            let text = kept.unwrap().to_string();
            assert_eq!(text, r#""x\n" of "r", which container "c" of pod "ns/p" holds"#);
        }
        let mut kept = None;
        Example::keep(&mut kept, held(&[b'z'; 9999]));
        assert!(kept.unwrap().to_string().len() < 200);
    }
}
