//! Reads the host UUID from the query of `find`, without allocating.

use refit_types::HostId;

/// The length of a UUID; no name that is known is longer.
const LONGEST: usize = 36;

/// The host that a query names, if it names one that can be read. Of parameters that are repeated the
/// first counts; `update_id` counts where there is no `host`.
pub(super) fn host(query: &str) -> Option<HostId> {
    let mut older = None;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let mut plain = [0; LONGEST];
        match decoded(name, &mut plain) {
            Some("host") => return read(value),
            Some("update_id") if older.is_none() => older = Some(value),
            _ => {}
        }
    }
    older.and_then(read)
}

fn read(value: &str) -> Option<HostId> {
    let mut plain = [0; LONGEST];
    // An error would carry the text.
    decoded(value, &mut plain).filter(|text| text.len() == LONGEST)?.parse().ok()
}

/// The text without its percent-encoding, if there is room for it and it is text.
fn decoded<'a>(text: &'a str, room: &'a mut [u8; LONGEST]) -> Option<&'a str> {
    if !text.contains('%') {
        return Some(text);
    }
    let mut rest = text.bytes();
    let mut length = 0;
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            plain => plain,
        };
        *room.get_mut(length)? = byte;
        length += 1;
    }
    std::str::from_utf8(&room[..length]).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55";
    const B: &str = "00000000-0000-0000-0000-00000000000b";

    #[test]
    fn what_names_a_host() {
        let [a, b] = [A, B].map(|text| Some(text.parse().unwrap()));
        let escaped: String = A.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for (query, expected) in [
            (format!("host={A}"), a),
            (format!("host={}", A.to_uppercase()), a),
            (format!("host={escaped}"), a),
            (format!("host={}", escaped.to_uppercase()), a),
            (format!("%68ost={A}"), a),
            (format!("group=x&host={A}&update_id={B}&what=ever"), a),
            (format!("update_id={B}&host={A}"), a),
            (format!("update_id={B}&update_id={A}"), b),
            (format!("host={B}&host={A}"), b),
            (format!("&&=&host={A}&"), a),
            (format!("update_id={B}"), b),
        ] {
            assert_eq!(host(&query), expected, "{query}");
        }
    }

    #[test]
    fn what_names_none() {
        for query in [
            String::new(),
            "host".into(),
            "host=".into(),
            "host=%".into(),
            "host=%4".into(),
            "host=%zz".into(),
            "host=%ff%fe".into(),
            format!("host={}", "%00".repeat(36)),
            format!("host={}", "-".repeat(36)),
            format!("host={A}0"),
            format!("host=+{}", &A[1..]),
            format!("host={}", &A[1..]),
            format!("host={}", A.replace('-', "")),
            format!("host={{{A}}}"),
            format!("host={}", "%61".repeat(600)),
            format!("HOST={A}"),
            format!("host=no&host={A}"),
            format!("host=no&update_id={A}"),
            format!("host[]={A}"),
            format!("host%00={A}"),
            format!("hos={A};host={A}"),
            A.into(),
            "=".repeat(2000),
            "&".repeat(2000),
        ] {
            assert_eq!(host(&query), None, "{query}");
        }
    }
}
