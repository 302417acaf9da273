//! Compares output: values that differ between runs by their shape, everything else exactly.

use std::sync::LazyLock;

use regex::Regex;

/// What stands for what. Times keep their zone, and ids their place.
const SHAPES: [(&str, &str); 11] = [
    // The UUID of a host or a server, and the name that simulated hosts make from theirs.
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"\bload-[0-9a-f]{8}\b", "load-<id>"),
    // A day and a time: `Sat 2026-01-02 03:04:05`, `2026-01-02 03:04`, `2026-01-02T03:04:05.123456Z`.
    (r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?", "<time>"),
    // How far away that is: `(in 3 hours)`, `(1 second ago)`, `(now)`.
    (
        r"\((?:now|in \d+ (?:second|minute|hour|day|year)s?|\d+ (?:second|minute|hour|day|year)s? ago)\)",
        "(<when>)",
    ),
    // Lengths of time in a reason: `in 2 d 3 h`, `5 s ago`.
    (r"\bin \d+ (?:d|h|min|s)(?: \d+ (?:h|min|s))?\b", "in <length>"),
    (r"\b\d+ (?:d|h|min|s)(?: \d+ (?:h|min|s))? ago\b", "<length> ago"),
    // The revision of a document.
    (r#"\brevision: "?\d+"?"#, "revision: <number>"),
    // The id of an event.
    (r"\b\d{16}-[0-9a-f]{12}\b", "<event>"),
    // The name of a token.
    (r"\btoken/[0-9a-f]{12}\b", "token/<id>"),
    // The platform of the machine that runs the test.
    (r"\blinux([-/])(?:amd64|arm64)\b", "linux$1<arch>"),
    // Where the server of the test listens.
    (r"\b127\.0\.0\.1:\d+\b", "<address>"),
];

fn shape(line: &str) -> String {
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        SHAPES.iter().map(|(pattern, name)| (Regex::new(pattern).unwrap(), *name)).collect()
    });
    PATTERNS
        .iter()
        .fold(line.to_owned(), |line, (pattern, name)| pattern.replace_all(&line, *name).into_owned())
}

/// Both texts, with `-` before what is shown and not printed and `+` before the opposite; nothing if they
/// have the same shape.
pub fn difference(shown: &[String], printed: &[String]) -> Option<String> {
    let shapes = |lines: &[String]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
    let (left, right) = (shapes(shown), shapes(printed));
    if left == right {
        return None;
    }
    // The length of the longest common rest, from every pair of lines on.
    let mut common = vec![vec![0; right.len() + 1]; left.len() + 1];
    for (n, one) in left.iter().enumerate().rev() {
        for (m, other) in right.iter().enumerate().rev() {
            common[n][m] = match one == other {
                true => common[n + 1][m + 1] + 1,
                false => common[n + 1][m].max(common[n][m + 1]),
            };
        }
    }
    let (mut n, mut m, mut told) = (0, 0, Vec::new());
    while n < left.len() || m < right.len() {
        if n < left.len() && m < right.len() && left[n] == right[m] {
            told.push(format!("    {}", printed[m]));
            (n, m) = (n + 1, m + 1);
        } else if m == right.len() || n < left.len() && common[n + 1][m] >= common[n][m + 1] {
            told.push(format!("  - {}", shown[n]));
            n += 1;
        } else {
            told.push(format!("  + {}", printed[m]));
            m += 1;
        }
    }
    Some(told.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_differs_from_run_to_run_has_one_shape() {
        for (one, other) in [
            ("at 2026-01-02 03:04:05 UTC (now)", "at 2027-11-12 23:14:15 UTC (12 days ago)"),
            ("opens Sat 2026-01-03 03:00 Europe/Berlin", "opens Mon 2026-11-23 04:00 Europe/Berlin"),
            ("not moving: window opens in 5 d 3 h", "not moving: window opens in 59 min 1 s"),
            ("paused 0 s ago", "paused 1 min 2 s ago"),
            ("revision: \"7\"", "revision: \"1234\""),
            (
                "failed  load-0b16c2a1  0b16c2a1-6e1b-4691-83f2-b5570504cc96  15.1.0",
                "failed  load-ffffffff  ffffffff-0000-4691-83f2-000000000000  15.1.0",
            ),
            ("--server 127.0.0.1:3080", "--server 127.0.0.1:45123"),
            ("token/9c9bff77fd65  created", "token/0123456789ab  created"),
            ("id: 1767322800000000-0123456789ab", "id: 1767322800000001-ba9876543210"),
        ] {
            assert_eq!(difference(&lines(one), &lines(other)), None);
        }
    }

    #[test]
    fn nothing_else_is_ignored() {
        for (one, other) in [
            ("4/4 upgraded", "3/4 upgraded"),
            ("Version: v15.1.1", "Version: v15.1.2"),
            ("at 2026-01-02 03:04:05 UTC", "at 2026-01-02 03:04:05 CET"),
            ("opens Sat 2026-01-03 03:00 Europe/Berlin", "opens Sat 2026-01-03 03:00 Europe/Paris"),
            ("failed  15.1.0", "failed   15.1.0"),
            ("start_hour: 3", "start_hour: 4"),
            ("a line", "a line\n"),
            ("limit 0%", "limit 10%"),
        ] {
            let (one, mut other_lines) = (lines(one), lines(other));
            if other.ends_with('\n') {
                other_lines.push(String::new());
            }
            assert!(difference(&one, &other_lines).is_some(), "{other:?}");
        }
    }

    #[test]
    fn a_difference_can_be_read() {
        let shown = lines("Groups:\nstaging: succeeded at 2026-01-02 03:04:05 UTC\n    3/4 upgraded\nend");
        let printed =
            lines("Groups:\nstaging: succeeded at 2027-01-02 03:04:05 UTC\n    4/4 upgraded\nmore\nend");
        assert_eq!(
            difference(&shown, &printed).unwrap(),
            "    Groups:\n    staging: succeeded at 2027-01-02 03:04:05 UTC\n  -     3/4 upgraded\n  \
             +     4/4 upgraded\n  + more\n    end"
        );
    }
}
