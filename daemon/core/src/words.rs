//! Product names as sets of words: how a key of the configuration or of a table names models of GPUs.

/// The entry of the longest key of which each word is a word of `model`; ties in order of name. Upper and lower case
/// are the same.
pub fn by_words<'e, T>(entries: &'e [(String, T)], model: &str) -> Option<&'e T> {
    let words: Vec<String> = split(model).collect();
    entries
        .iter()
        .filter(|(key, _)| split(key).next().is_some() && split(key).all(|word| words.contains(&word)))
        .max_by(|a, b| a.0.len().cmp(&b.0.len()).then_with(|| b.0.cmp(&a.0)))
        .map(|(_, entry)| entry)
}

/// The words of a product name, in capitals.
pub fn split(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_uppercase)
}
