//! Page sizes and page tokens, the same for every list of the API.

use tonic::Status;

/// What a page holds when the caller does not say.
const DEFAULT: usize = 100;
const LARGEST: usize = 1000;

/// How many items to return, as AIP-158 has it: 0 lets the server choose, more than it likes is cut.
pub(super) fn size(asked: i32) -> Result<usize, Status> {
    match usize::try_from(asked) {
        Ok(0) => Ok(DEFAULT),
        Ok(size) => Ok(size.min(LARGEST)),
        Err(_) => Err(Status::invalid_argument(format!("page_size: {asked} is negative"))),
    }
}

/// A token that means "behind this name".
pub(super) fn token_after(name: &str) -> String {
    data_encoding::BASE64URL_NOPAD.encode(name.as_bytes())
}

/// The name in a token, if there is one.
pub(super) fn name_in(token: &str) -> Result<Option<String>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let decoded = data_encoding::BASE64URL_NOPAD.decode(token.as_bytes()).ok();
    match decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(name) => Ok(Some(name)),
        None => Err(Status::invalid_argument("page_token: it is not one that this service gave")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_tokens_follow_the_rules() {
        assert_eq!((size(0).unwrap(), size(7).unwrap(), size(i32::MAX).unwrap()), (100, 7, 1000));
        assert!(size(-1).is_err());
        assert_eq!(name_in(&token_after("stable/é")).unwrap().as_deref(), Some("stable/é"));
        assert_eq!(name_in("").unwrap(), None);
        assert!(name_in("!").is_err() && name_in("_w").is_err());
    }
}
