//! Times and texts as HTML, escaped.

use std::fmt;

use askama::filters::HtmlSafe;
use jiff::Timestamp;
pub(super) use refit_types::{counted, in_words};

/// A time: in UTC, and converted to the reader's time zone by the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(pub(super) Timestamp);

impl HtmlSafe for Moment {}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mark { machine, utc } = Mark::of(self.0);
        write!(f, r#"<time datetime="{machine}" title="{utc}">{utc}</time>"#)
    }
}

/// A time on the axis of a chart, where no element fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) machine: String,
    pub(super) utc: String,
}

impl Mark {
    pub(super) fn of(at: Timestamp) -> Self {
        Self { machine: at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), utc: utc(at) }
    }
}

/// A sentence that contains times.
#[derive(Debug, Clone, Default)]
pub(super) struct Prose(String);

impl HtmlSafe for Prose {}

impl fmt::Display for Prose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Prose {
    pub(super) fn text(mut self, text: &str) -> Self {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
        self
    }

    pub(super) fn time(mut self, at: Timestamp) -> Self {
        self.0.push_str(&Moment(at).to_string());
        self
    }
}

/// A time in UTC, to the second.
pub(super) fn utc(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The text, truncated to so many letters.
pub(super) fn shortened(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        let said = Prose::default().text(r#"<script>alert("1")</script> & 'x'"#).to_string();
        assert_eq!(said, "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39;");
        let at = Moment("2026-01-02T03:04:05.6Z".parse().unwrap()).to_string();
        assert!(at.starts_with(r#"<time datetime="2026-01-02T03:04:05Z" title="2026-01-02 03:04:05 UTC">"#));
    }
}
