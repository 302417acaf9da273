//! The join token as it is configured: a secret that no log or error shows.

use std::fmt;

use serde::Deserialize;

/// Far longer than any token.
const LONGEST: usize = 1024;

/// What lets a host join. It is a secret: only [`Token::reveal`] gives it out.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Token(String);

impl Token {
    /// The token of that text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the control plane.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The refusal never says what the text is.
    pub(super) fn checked(self) -> Result<Self, String> {
        if self.0.is_empty() || self.0.len() > LONGEST || !self.0.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(format!(
                "is not a join token; expected 1 to {LONGEST} visible ASCII characters, as `refitctl nodes add` prints it"
            ));
        }
        Ok(self)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
