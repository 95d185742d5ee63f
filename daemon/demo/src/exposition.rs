//! Reading the daemon's metrics as anyone would: over HTTP, as text.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One line of an exposition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Series {
    /// A label's value; empty if there is none.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// GETs `path`. Gives the status and the body.
pub(crate) fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let bad = || std::io::Error::other("not an HTTP answer");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(bad)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(bad)?;
    Ok((status, body.to_owned()))
}

/// Scrapes `/metrics`.
pub(crate) fn scrape(address: SocketAddr) -> std::io::Result<Vec<Series>> {
    let (_, body) = get(address, "/metrics")?;
    Ok(body.lines().filter(|line| !line.starts_with('#')).filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Series> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, rest)) = series.split_once('{') else {
        return Some(Series { name: series.to_owned(), labels: BTreeMap::new(), value });
    };
    let mut labels = BTreeMap::new();
    let mut rest = rest.strip_suffix('}')?;
    while let Some((label, after)) = rest.split_once("=\"") {
        let mut text = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (_, '\\') => text.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (end, '"') => break end,
                (_, other) => text.push(other),
            }
        };
        labels.insert(label.trim_start_matches(',').to_owned(), text);
        rest = &after[end + 1..];
    }
    Some(Series { name: name.to_owned(), labels, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back() {
        let series = parse(r#"a_total{x="1,\"\\",y="",z="é"} 2.5"#).unwrap();
        assert_eq!((series.name.as_str(), series.label("x"), series.label("z")), ("a_total", "1,\"\\", "é"));
        assert!((series.value - 2.5).abs() < f64::EPSILON);
        assert_eq!(parse("up 1").unwrap().labels.len(), 0);
        assert_eq!(parse("nonsense"), None);
    }
}
