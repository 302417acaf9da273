//! What users may do and what machines are: roles, in text and in sets.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::NameError;

/// What a user may do; the server's table says which calls that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Role {
    /// Everything.
    Admin,
    /// When and in which order hosts are updated, not to which version.
    RolloutEditor,
    /// Which version hosts are updated to.
    VersionEditor,
    /// Looking only.
    Viewer,
}

impl Role {
    /// Every role that a user can have, for tables and tests that must miss none.
    pub const ALL: [Self; 4] = [Self::Admin, Self::RolloutEditor, Self::VersionEditor, Self::Viewer];

    /// The role as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::RolloutEditor => "rollout-editor",
            Self::VersionEditor => "version-editor",
            Self::Viewer => "viewer",
        }
    }
}

/// What a machine of the cluster is. Kept apart from [`Role`], so that no user can ever be given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum SystemRole {
    /// A server of the control plane.
    Server,
    /// A host that an agent runs on.
    Host,
}

impl SystemRole {
    /// Every system role.
    pub const ALL: [Self; 2] = [Self::Server, Self::Host];

    /// The role as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Host => "host",
        }
    }
}

/// Gives an enum with `ALL` and `as_str` its text form: `Display`, `FromStr` that lists what is allowed, and
/// serde by that text.
macro_rules! text_enum {
    ($name:ident, $what:literal) => {
        impl FromStr for $name {
            type Err = NameError;

            fn from_str(given: &str) -> Result<Self, NameError> {
                Self::ALL.into_iter().find(|value| value.as_str() == given).ok_or_else(|| NameError {
                    given: given.into(),
                    what: $what,
                    expected: join_or(Self::ALL.map(Self::as_str).as_slice()),
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(given: String) -> Result<Self, NameError> {
                given.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.as_str().into()
            }
        }
    };
}

pub(crate) use text_enum;

text_enum!(Role, "role");
text_enum!(SystemRole, "system role");

/// Words as in "a, b or c".
pub(crate) fn join_or(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.join(""),
    }
}

/// The roles of one user: at least one, sorted, none twice. Written as `admin,viewer`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Role>", into = "Vec<Role>")]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    /// Takes roles in any order, and refuses none at all: a user without a role could do nothing.
    pub fn new(roles: impl IntoIterator<Item = Role>) -> Result<Self, NameError> {
        let roles: BTreeSet<Role> = roles.into_iter().collect();
        if roles.is_empty() {
            let expected = join_or(Role::ALL.map(Role::as_str).as_slice());
            return Err(NameError {
                given: String::new(),
                what: "set of roles",
                expected: format!("one or more of {expected}"),
            });
        }
        Ok(Self(roles))
    }

    /// The roles, in order.
    pub fn iter(&self) -> impl Iterator<Item = Role> {
        self.0.iter().copied()
    }

    /// Whether `role` is one of them.
    pub fn contains(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

impl From<Role> for Roles {
    fn from(role: Role) -> Self {
        Self(BTreeSet::from([role]))
    }
}

impl FromStr for Roles {
    type Err = NameError;

    fn from_str(given: &str) -> Result<Self, NameError> {
        if given.trim().is_empty() {
            return Self::new([]);
        }
        let roles: Result<Vec<Role>, NameError> = given.split(',').map(|role| role.trim().parse()).collect();
        Self::new(roles?)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, role) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            role.fmt(f)?;
        }
        Ok(())
    }
}

impl TryFrom<Vec<Role>> for Roles {
    type Error = NameError;

    fn try_from(roles: Vec<Role>) -> Result<Self, NameError> {
        Self::new(roles)
    }
}

impl From<Roles> for Vec<Role> {
    fn from(roles: Roles) -> Self {
        roles.0.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_role_is_told_the_right_ones() {
        assert_eq!(
            "root".parse::<Role>().unwrap_err().to_string(),
            "\"root\" is not a role: expected admin, rollout-editor, version-editor or viewer"
        );
        assert_eq!(
            "node".parse::<SystemRole>().unwrap_err().to_string(),
            "\"node\" is not a system role: expected server or host"
        );
        assert!("server".parse::<Role>().is_err(), "no user can be a server");
    }

    #[test]
    fn sets_are_sorted_and_never_empty() {
        let roles: Roles = "viewer, admin,viewer".parse().unwrap();
        assert_eq!(roles.to_string(), "admin,viewer");
        assert_eq!(serde_json::to_string(&roles).unwrap(), r#"["admin","viewer"]"#);
        assert_eq!(serde_json::from_str::<Roles>(r#"["viewer","admin"]"#).unwrap(), roles);
        for bad in ["", " ", ",", "admin,", "admin,root"] {
            assert!(bad.parse::<Roles>().is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<Roles>("[]").is_err());
        let empty = "".parse::<Roles>().unwrap_err().to_string();
        assert!(empty.contains("one or more of admin, rollout-editor"), "{empty}");
    }

    #[test]
    fn every_role_reads_back() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse::<Role>().unwrap(), role);
        }
    }
}
