//! Parses the HTTP `Range` header. No I/O.

/// Bytes of a file, from `start` up to and without `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    pub(super) fn whole(size: u64) -> Self {
        Self { start: 0, end: size }
    }

    pub(super) fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// What a `Range` means for a file of a certain size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Whole,
    Part(Span),
    Beyond,
}

/// Parses a `Range`. One that is malformed or asks for several parts is ignored: the response is the whole file.
pub(super) fn asked(range: &str, size: u64) -> Asked {
    let Some((unit, one)) = range.split_once('=') else { return Asked::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Asked::Whole;
    }
    let Some((first, last)) = one.trim().split_once('-') else { return Asked::Whole };
    let span = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => {
            Span { start: first, end: last.saturating_add(1).min(size) }
        }
        (Some(first), None) if last.is_empty() => Span { start: first, end: size },
        (None, Some(length)) if first.is_empty() => Span { start: size.saturating_sub(length), end: size },
        _ => return Asked::Whole,
    };
    if span.start < span.end { Asked::Part(span) } else { Asked::Beyond }
}

/// One that does not fit is past the end of any file.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        let part = |start, end| Asked::Part(Span { start, end });
        for (range, meant) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-9", part(0, 10)),
            ("bytes=0-10", part(0, 10)),
            ("bytes=9-9", part(9, 10)),
            ("bytes=9-", part(9, 10)),
            ("bytes=0-", part(0, 10)),
            ("bytes=-1", part(9, 10)),
            ("bytes=-10", part(0, 10)),
            ("bytes=-11", part(0, 10)),
            ("Bytes=3-4", part(3, 5)),
            ("bytes= 3-4 ", part(3, 5)),
            ("bytes=5-99999999999999999999999", part(5, 10)),
            ("bytes=5-18446744073709551615", part(5, 10)),
            ("bytes=-99999999999999999999999", part(0, 10)),
            ("bytes=10-", Asked::Beyond),
            ("bytes=10-10", Asked::Beyond),
            ("bytes=99999999999999999999999-", Asked::Beyond),
            ("bytes=-0", Asked::Beyond),
        ] {
            assert_eq!(asked(range, 10), meant, "{range}");
        }
        for none in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=1-2,4-5",
            "lines=1-2",
            "bytes=--1",
            "bytes=1 -2",
        ] {
            assert_eq!(asked(none, 10), Asked::Whole, "{none}");
        }
        assert_eq!(asked("bytes=0-", 0), Asked::Beyond);
        assert_eq!(asked("bytes=-1", 0), Asked::Beyond);
        assert_eq!(asked("bytes=0-", u64::MAX), part(0, u64::MAX));
    }
}
