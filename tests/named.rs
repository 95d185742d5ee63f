//! Tests that documents name as proof.

use std::collections::BTreeSet;
use std::path::Path;

/// Names of the functions in all sources below a directory.
fn functions(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names =
                text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split_once('('));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

#[test]
fn every_test_that_the_page_of_counters_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/counters.md")).unwrap();
    let (_, tables) = page.split_once("## Conflicts and faults").unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |"));
    let mut found = BTreeSet::new();
    functions(&root, &mut found);
    let mut count = 0;
    for row in rows {
        let proof = row.trim_end_matches(" |").rsplit_once("| ").unwrap().1;
        let names: Vec<&str> = proof.split(", ").map(|name| name.trim_matches('`')).collect();
        for name in &names {
            assert!(found.contains(*name), "no test is called {name}: {row}");
        }
        count += names.len();
    }
    assert!(count > 40, "{count} tests in the tables");
}
