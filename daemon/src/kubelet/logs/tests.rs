use std::os::unix::fs::symlink;

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UID: &str = "0b7fdcf5-7e3c-4a3c-9d39-0a4e52f8d001";

struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["pods", "containers"] {
            std::fs::create_dir(root.path().join(directory)).unwrap();
        }
        Self { root }
    }

    fn logs(&self) -> Logs {
        Logs::new(&KubeletOptions {
            pod_logs: self.root.path().join("pods"),
            container_logs: self.root.path().join("containers"),
            ..KubeletOptions::default()
        })
    }

    fn pod(&self, name: &str) {
        std::fs::create_dir(self.root.path().join("pods").join(name)).unwrap();
    }

    fn link(&self, name: &str, target: &str) {
        symlink(target, self.root.path().join("containers").join(name)).unwrap();
    }
}

fn name(namespace: &str, name: &str) -> PodName {
    PodName { namespace: namespace.into(), name: name.into() }
}

fn ids(logs: &Logs, uid: &str) -> Vec<(String, String)> {
    let uid = PodUid::new(uid);
    let named = logs.containers(&uid);
    named.map(|(name, id)| (name.to_string(), id.as_str()[..4].to_owned())).collect()
}

#[test]
fn directories_name_pods_and_links_name_containers() {
    let node = Node::new();
    node.pod(&format!("research_trainer-0_{UID}"));
    node.pod("kube-system_static-node-1_8e5fbf1a63d3b5d4ad8c0e0d1b6a3f42");
    let restarted = ID.replace('0', "f");
    node.link(
        &format!("trainer-0_research_main-{ID}.log"),
        &format!("/var/log/pods/research_trainer-0_{UID}/main/0.log"),
    );
    node.link(
        &format!("trainer-0_research_main-{restarted}.log"),
        &format!("/var/log/pods/research_trainer-0_{UID}/main/1.log"),
    );
    node.link(&format!("trainer-0_research_init-data-{ID}.log"), "/var/lib/docker/containers/x/x-json.log");
    let mut logs = node.logs();
    logs.read();
    assert_eq!(logs.uid(&name("research", "trainer-0")).unwrap().as_str(), UID);
    let hash = logs.uid(&name("kube-system", "static-node-1")).unwrap().as_str();
    assert_eq!(hash, "8e5fbf1a63d3b5d4ad8c0e0d1b6a3f42", "a static pod's");
    let all = [("init-data", "0123"), ("main", "0123"), ("main", "f123")];
    assert_eq!(ids(&logs, UID), all.map(|(name, id)| (name.to_owned(), id.to_owned())));
}

#[test]
fn links_name_pods_whose_directories_cannot_be_read() {
    let node = Node::new();
    node.link(&format!("p_ns_c-{ID}.log"), &format!("/var/log/pods/ns_p_{UID}/c/0.log"));
    std::fs::remove_dir(node.root.path().join("pods")).unwrap();
    let mut logs = node.logs();
    logs.read();
    assert_eq!(logs.uid(&name("ns", "p")).unwrap().as_str(), UID);
    assert!(logs.unread_pods().is_some() && logs.unread_containers().is_none());
}

#[test]
fn of_pods_of_the_same_name_the_latest_counts() {
    let node = Node::new();
    // In neither order of their names.
    for uid in ["b-first", "a-second", "c-third", "b-fourth"] {
        node.pod(&format!("ns_p_{uid}"));
        std::thread::sleep(std::time::Duration::from_millis(15));
    }
    let mut logs = node.logs();
    logs.read();
    assert_eq!(logs.uid(&name("ns", "p")).unwrap().as_str(), "b-fourth");
    // What happens in an older one later does not make it newer.
    std::fs::create_dir(node.root.path().join("pods/ns_p_b-first/c")).unwrap();
    std::fs::remove_dir(node.root.path().join("pods/ns_p_b-fourth")).unwrap();
    logs.read();
    assert_eq!(logs.uid(&name("ns", "p")).unwrap().as_str(), "c-third");
}

#[test]
fn a_wall_clock_that_is_set_back_makes_no_pod_older_that_came_later() {
    let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let pod = |uid: &str, made| (name("ns", "p"), PodUid::new(uid), at(made));
    let mut latest = Latest::default();
    let mut read = |pods: &[_]| {
        latest.read(pods.iter().cloned());
        latest.of(&name("ns", "p")).last().map(|uid| uid.as_str().to_owned())
    };
    // Found together, the time of making tells them apart.
    assert_eq!(read(&[pod("b", 200), pod("a", 100)]).as_deref(), Some("b"));
    assert_eq!(read(&[pod("a", 100), pod("c", 50), pod("b", 200)]).as_deref(), Some("c"));
    assert_eq!(read(&[pod("a", 100), pod("c", 50)]).as_deref(), Some("c"));
    assert_eq!(read(&[pod("a", 100)]).as_deref(), Some("a"));
    assert_eq!(read(&[]), None);
    assert!(latest.first.is_empty(), "what is gone is forgotten");
}

#[test]
fn a_link_to_another_pods_log_is_not_believed() {
    let node = Node::new();
    node.pod(&format!("ns_p_{UID}"));
    node.link(&format!("p_ns_c-{ID}.log"), "/var/log/pods/ns_other_someone-else/c/0.log");
    let mut logs = node.logs();
    logs.read();
    assert!(ids(&logs, "someone-else").is_empty());
    assert_eq!(ids(&logs, UID).len(), 1);
}

#[test]
fn other_names_are_passed_over() {
    let node = Node::new();
    for odd in ["x", "a_b", "a_b_c_d", "__", "a__b", "ns_p_u id", "ns_p_ü"] {
        node.pod(odd);
    }
    let cut = &ID[..40];
    for odd in
        [format!("p_ns_c-{cut}.log"), format!("p_ns_-{ID}.log"), format!("p_ns_c-{ID}"), "x.log".into()]
    {
        node.link(&odd, "/nowhere");
    }
    std::fs::write(node.root.path().join(format!("containers/p_ns_c-{ID}.log")), "not a link").unwrap();
    let mut logs = node.logs();
    logs.read();
    assert!(logs.newest.uids.is_empty() && logs.linked.uids.is_empty() && logs.named.is_empty(), "{logs:?}");
}

#[test]
fn what_was_read_stays_when_a_directory_cannot_be_read() {
    let node = Node::new();
    node.pod(&format!("ns_p_{UID}"));
    let mut logs = node.logs();
    assert!(logs.changed());
    logs.read();
    assert!(!logs.changed());
    std::fs::rename(node.root.path().join("pods"), node.root.path().join("gone")).unwrap();
    assert!(logs.pods_changed());
    logs.read();
    assert!(logs.unread_pods().is_some());
    assert_eq!(logs.uid(&name("ns", "p")).unwrap().as_str(), UID);
    assert!(!logs.changed(), "still unreadable is no change");
}
