//! What a configuration means on this node.

use warpmeter_core::fact::Source;
use warpmeter_core::settings::Settings;

use crate::config::{Config, Pods};
use crate::kubelet::KubeletOptions;
use crate::prices::PriceSource;

/// The fold's settings under a configuration.
pub fn settings(config: &Config) -> Settings {
    // In a container the host's name is the pod's; `NODE_NAME` is how a DaemonSet says which node it is on.
    let named = std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let node = if let (true, Some(name)) = (config.node.is_empty(), named) {
        name
    } else if config.node.is_empty() {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    } else {
        config.node.clone()
    };
    let source = pods_source(config);
    // Whoever names pods says who holds what; otherwise those hold a device who have it open: for good, or until
    // there is a kubelet to say it.
    let grants_expected = matches!(source, Pods::Kubelet | Pods::File(_));
    let infer_allocation = config.infer.unwrap_or(!grants_expected);
    let infer_until_heard = config.infer.is_none() && source == Pods::Auto;
    let prices = PriceSource::new(config.price.clone(), &node).prices().clone();
    Settings { node, infer_allocation, infer_until_heard, grants_expected, prices, ..config.settings.clone() }
}

/// Who says which pod holds which device on this node: the kubelet if there is one, unless told otherwise.
/// [`Pods::Auto`] if there is none so far.
pub fn pods_source(config: &Config) -> Pods {
    match &config.pods {
        Pods::Auto if has_kubelet(&config.kubelet) => Pods::Kubelet,
        chosen => chosen.clone(),
    }
}

/// Whether there is a directory for the kubelet's socket, which only a kubelet makes.
pub(super) fn has_kubelet(options: &KubeletOptions) -> bool {
    options.socket.parent().is_some_and(std::path::Path::is_dir)
}

/// The sources that run under a configuration.
pub fn expected_sources(config: &Config) -> Vec<Source> {
    let pods = (pods_source(config) != Pods::None).then_some(Source::Pods);
    let names = config.names.is_some().then_some(Source::Names);
    let prices = config.price.can_change().then_some(Source::Prices);
    let dcgm = config.dcgm.is_some().then_some(Source::Dcgm);
    let inject = config.inject.then_some(Source::Inject);
    let further = [pods, names, prices, dcgm, inject].into_iter().flatten();
    [Source::Nvidia, Source::Host].into_iter().chain(further).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(text: &str) -> (Pods, Settings) {
        let config = Config::parse(text).unwrap();
        (pods_source(&config), settings(&config))
    }

    #[test]
    fn grants_are_expected_of_a_kubelet_that_is_there_and_inferred_until_one_comes() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("pod-resources/kubelet.sock");
        let text = format!("[kubelet]\nsocket = {socket:?}\n");
        let (source, settings) = under(&text);
        assert_eq!(source, Pods::Auto);
        assert!(settings.infer_allocation && settings.infer_until_heard && !settings.grants_expected);
        std::fs::create_dir(socket.parent().unwrap()).unwrap();
        let (source, settings) = under(&text);
        assert_eq!(source, Pods::Kubelet);
        assert!(!settings.infer_allocation && !settings.infer_until_heard && settings.grants_expected);
    }

    #[test]
    fn what_is_said_of_inference_holds_whether_a_kubelet_comes_or_not() {
        for (word, inferred) in [("true", true), ("false", false)] {
            let text = format!(
                "[kubelet]\nsocket = \"/nowhere/at/all/kubelet.sock\"\n[allocation]\ninfer = {word}\n"
            );
            let (_, settings) = under(&text);
            assert_eq!((settings.infer_allocation, settings.infer_until_heard), (inferred, false), "{word}");
        }
        let (_, settings) = under("[pods]\nsource = \"none\"\n");
        assert!(settings.infer_allocation && !settings.infer_until_heard, "nobody is awaited");
    }
}
