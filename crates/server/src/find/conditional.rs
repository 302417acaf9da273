//! The HTTP `If-None-Match` header: lets `find` and downloads answer 304.

use axum::http::HeaderMap;
use axum::http::header::IF_NONE_MATCH;

/// Whether the client already has the content of `tag`. Weak tags match too, because responses are not assembled from
/// ranges here.
pub(crate) fn none_match(asked: &HeaderMap, tag: &[u8]) -> bool {
    asked.get_all(IF_NONE_MATCH).iter().any(|list| {
        list.as_bytes().split(|byte| *byte == b',').any(|one| {
            let one = one.trim_ascii();
            one == b"*" || one.strip_prefix(b"W/").unwrap_or(one) == tag
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_weak_tags_and_any() {
        let none_match_of = |lists: &[&'static str]| {
            let mut asked = HeaderMap::new();
            for list in lists {
                asked.append(IF_NONE_MATCH, list.parse().unwrap());
            }
            none_match(&asked, br#""abc""#)
        };
        for matching in [r#""abc""#, r#"W/"abc""#, "*", r#""x","abc""#, r#" "x" , W/"abc" "#, r#", "abc","#] {
            assert!(none_match_of(&[matching]), "{matching}");
        }
        assert!(none_match_of(&[r#""x""#, r#""abc""#]), "in a second header");
        for other in
            ["", "abc", r#""ab""#, r#""abc"#, r#"w/"abc""#, r#"W/ "abc""#, r#""abcd""#, r#""*""#, "**"]
        {
            assert!(!none_match_of(&[other]), "{other}");
        }
        assert!(!none_match_of(&[]));
    }
}
