//! The text of `/proc/PID/cgroup`: one line for each hierarchy, `ID:CONTROLLERS:PATH`.

use std::cmp::Reverse;

use warpmeter_core::identity::Scope;

use super::path;

/// Parses the text of `/proc/PID/cgroup`.
///
/// Of all hierarchies the line that says most is believed (a container of a pod, a pod, a Slurm job, a container, a
/// systemd unit), because a process of a container may be in its runtime's unit in those hierarchies that the
/// runtime does not manage. Among equals the unified hierarchy comes first, then systemd's, then controllers.
/// Lines that do not parse say nothing.
///
/// Identifiers are returned as the runtime wrote them, pod UIDs with dashes, units with systemd's escapes.
pub fn scope(text: &str) -> Scope {
    Membership::parse(text).scope.unwrap_or(Scope::Host)
}

/// What a cgroup file says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Membership {
    /// The owner; none if no line parsed.
    pub scope: Option<Scope>,
    /// Lines that did not parse.
    pub garbage: u64,
}

impl Membership {
    pub(super) fn parse(text: &str) -> Self {
        let mut garbage = 0;
        let best = text
            .lines()
            .filter(|line| !line.is_empty())
            .filter_map(|line| {
                let parsed = Line::parse(line);
                garbage += u64::from(parsed.is_none());
                parsed
            })
            .map(|line| (path::scope(line.path), line.precedence()))
            // The first of the least: later lines of the same rank and precedence change nothing.
            .min_by_key(|(scope, precedence)| (Reverse(path::strength(scope)), *precedence));
        Self { scope: best.map(|(scope, _)| scope), garbage }
    }
}

/// One hierarchy and the process's place in it.
#[derive(Debug)]
struct Line<'a> {
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        // A path may contain colons.
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let numbered = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        (numbered && path.starts_with('/')).then_some(Self { controllers, path })
    }

    fn precedence(&self) -> usize {
        const ORDER: [&str; 6] = ["", "name=systemd", "memory", "cpu", "devices", "pids"];
        ORDER
            .iter()
            .position(|wanted| self.controllers.split(',').any(|name| name == *wanted))
            .unwrap_or(ORDER.len())
    }
}

#[cfg(test)]
mod tests;
