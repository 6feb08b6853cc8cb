//! The line about the daemon that `systemctl status` shows: `STATUS=` of sd_notify(3).

use super::state::State;
use common::time::{Span, Time};

/// How often it is brought up to date.
pub(super) const INTERVAL: Span = Span::from_secs(1);

impl State {
    /// What works, or the first of what does not.
    pub(super) fn status_text(&self, now: Time) -> String {
        let ports = self.routing.publisher().ports();
        let up = ports.iter().filter(|port| port.up).count();
        let all = self.known_ports().count();
        let (v4, v6) = self.routing.publisher().fib_writer().len();
        text(up, all, v4 + v6, &self.problems(now))
    }
}

fn text(up: usize, ports: usize, routes: usize, problems: &[String]) -> String {
    let works = format!("{up} of {ports} ports up, {routes} routes");
    match problems {
        [] => works,
        [only] => format!("{works}; {only}"),
        [first, ..] => format!("{works}; {} problems, the first: {first}", problems.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-5: what systemd shows of a daemon.
    #[test]
    fn one_line_says_what_works_and_what_does_not() {
        let problems = ["a".to_owned(), "b".to_owned()];
        assert_eq!(text(3, 4, 100_012, &[]), "3 of 4 ports up, 100012 routes");
        assert_eq!(
            text(0, 1, 2, &problems[..1]),
            "0 of 1 ports up, 2 routes; a"
        );
        assert_eq!(
            text(0, 1, 2, &problems),
            "0 of 1 ports up, 2 routes; 2 problems, the first: a"
        );
    }
}
