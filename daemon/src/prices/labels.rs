//! The file of the node's labels: a line `key="value"` for each, as a downward API volume writes them, or `key=value`.

use std::collections::BTreeMap;

/// Parses a file. On failure gives every problem, each with its line. Empty lines and those that begin with `#` say
/// nothing.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, Vec<String>> {
    let mut labels = BTreeMap::new();
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match entry(line) {
            Some((key, value)) if labels.get(&key).is_none_or(|other| *other == value) => {
                labels.insert(key, value);
            }
            Some((key, _)) => problems.push(format!("line {}: {key} is there twice", index + 1)),
            None => problems.push(format!("line {}: it is not a label such as key=\"value\"", index + 1)),
        }
    }
    if problems.is_empty() { Ok(labels) } else { Err(problems) }
}

/// Values of labels have nothing in them that would have to be escaped.
fn entry(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once('=')?;
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?,
        None => value,
    };
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let is_value = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let valid = !key.is_empty() && key.len() <= 317 && key.bytes().all(is_key);
    (valid && value.len() <= 63 && value.bytes().all(is_value)).then(|| (key.to_owned(), value.to_owned()))
}
