//! The rules of the log for text of others: no token, no password, no credentials or query of an address, no private key,
//! and no character that breaks a line. Applied to whatever an agent wrote before it is stored, shown or sent.

use crate::archive::redacted;

const MASK: &str = "***";
/// Names whose value is secret, in any case and as a part of a longer name.
const SECRET_NAMES: [&str; 8] =
    ["token", "password", "passwd", "secret", "api_key", "apikey", "authorization", "private_key"];
/// Join tokens have 32 hexadecimal digits; digests are public where they are named as such.
const SHORTEST_SECRET: usize = 32;

/// A line as it may be shared.
pub(crate) fn masked(line: &str) -> String {
    let clean: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.contains("PRIVATE KEY") {
        return MASK.into();
    }
    let mut shown: Vec<String> = Vec::new();
    let (mut is_secret_next, mut before) = (false, "");
    for word in clean.split_whitespace() {
        let (text, is_secret) = masked_word(word, is_secret_next);
        shown.push(text);
        is_secret_next = is_secret || ["=", ":"].contains(&word) && is_secret_name(before);
        before = word;
    }
    shown.join(" ")
}

/// The word as it may be shared, and whether the next one is secret.
fn masked_word(word: &str, is_secret: bool) -> (String, bool) {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
    // `Authorization: Bearer X`.
    if is_secret && (bare.is_empty() || ["bearer", "basic"].contains(&bare.to_lowercase().as_str())) {
        return (word.into(), true);
    }
    if is_secret {
        return (MASK.into(), false);
    }
    if word.contains("://") {
        return (redacted(word), false);
    }
    if let Some(at) = word.find(['=', ':']) {
        let (name, value) = (&word[..at], &word[at + 1..]);
        if is_secret_name(name) {
            return match value.trim_matches(['"', '\'', ',']).is_empty() {
                true => (word.into(), true),
                false => (format!("{}{MASK}", &word[..=at]), false),
            };
        }
    }
    if word.starts_with('-') && is_secret_name(bare) || bare.eq_ignore_ascii_case("bearer") {
        return (word.into(), true);
    }
    (without_long_hex(word), false)
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase().replace('-', "_");
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

/// Masks what looks like a token: a long run of hexadecimal digits that is not called a digest.
fn without_long_hex(word: &str) -> String {
    let mut shown = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let run = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if run >= SHORTEST_SECRET && !shown.to_lowercase().ends_with("sha256:") {
            shown += MASK;
        } else {
            shown += &rest[..run];
        }
        let next = rest[run..].find(|c: char| c.is_ascii_hexdigit()).map_or(rest.len(), |at| run + at);
        shown += &rest[run..next];
        rest = &rest[next..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_the_rest_is_not() {
        const TOKEN: &str = "6ac3a7390d7ae9beb543f169700ec9da";
        for (line, shown) in [
            ("error: no space left on device (os error 28)", "error: no space left on device (os error 28)"),
            ("joining with --token abc now", "joining with --token *** now"),
            ("joining with --token=abc now", "joining with --token=*** now"),
            ("  token: abc", "token: ***"),
            ("{\"token\":\"abc\",", "{\"token\":***"),
            ("DB_PASSWORD=hunter2 x", "DB_PASSWORD=*** x"),
            ("password = hunter2 x", "password = *** x"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
            ("got bearer abc.def", "got bearer ***"),
            ("GET https://u:p@example.com/a?sig=abc failed", "GET https://example.com/a failed"),
            ("the token expired", "the token expired"),
            ("pin sha256:0123456789abcdef0123456789abcdef", "pin sha256:0123456789abcdef0123456789abcdef"),
            ("host d6fffa73-5606-439c-9d96-a2edc4efeeac", "host d6fffa73-5606-439c-9d96-a2edc4efeeac"),
            ("-----BEGIN RSA PRIVATE KEY-----", "***"),
            ("a\u{1b}[31mred\tb", "a [31mred b"),
        ] {
            assert_eq!(masked(line), shown, "{line}");
        }
        assert_eq!(masked(&format!("({TOKEN})")), "(***)");
    }
}
