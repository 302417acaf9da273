//! The macro that gives an enum its stored text form, and the error for a text that is not one of its values.

/// Gives an enum of plain words its text form: `as_str`, `Display`, `FromStr` that lists what is
/// allowed, and serde by that text.
macro_rules! text_enum {
    ($name:ident, $what:literal, { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::text_enum::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| {
                    let allowed: Vec<&str> = Self::ALL.iter().map(|word| word.as_str()).collect();
                    crate::text_enum::UnknownWord::new(text, $what, &allowed)
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = crate::text_enum::UnknownWord;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
            }
        }
    };
}

pub(crate) use text_enum;

/// A word that is none of those allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {what}; expected {allowed}")]
pub struct UnknownWord {
    found: String,
    what: &'static str,
    allowed: String,
}

impl UnknownWord {
    pub(crate) fn new(found: &str, what: &'static str, allowed: &[&str]) -> Self {
        Self { found: found.chars().take(80).collect(), what, allowed: allowed.join(", ") }
    }
}
