//! Who a certificate speaks for, as it is written in the certificate's names and read back from them.

use std::fmt;

use refit_types::{AgentRole, HostId};

use crate::names::quoted;
use crate::{ClusterName, NameError, Role, Roles, ServerId, SystemRole, UserName};

const SCHEME: &str = "refit://";

/// Who a certificate speaks for.
///
/// In a certificate this is a set of names: `refit://<cluster>/user/<name>` with one
/// `refit://<cluster>/role/<role>` for each role, or `refit://<cluster>/server/<id>`, or
/// `refit://<cluster>/host/<uuid>` with one `refit://<cluster>/agent-role/<role>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A person or program that administers the cluster.
    User {
        /// The cluster that vouches for it.
        cluster: ClusterName,
        /// Its name.
        name: UserName,
        /// What it may do.
        roles: Roles,
    },
    /// A server of the control plane.
    Server {
        /// The cluster that vouches for it.
        cluster: ClusterName,
        /// Which one.
        id: ServerId,
    },
    /// An agent, in one of its roles: it has an identity for each.
    Host {
        /// The cluster that vouches for it.
        cluster: ClusterName,
        /// The host that it runs on.
        id: HostId,
        /// What it does there.
        role: AgentRole,
    },
}

/// Why names in a certificate do not add up to one principal. They are never guessed at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrincipalError {
    /// A name of another kind, or that Refit never writes.
    #[error("{} is not a name that Refit writes", quoted(.0))]
    Unexpected(String),
    /// A part of a name that is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Names of two clusters in one certificate.
    #[error("it names two clusters, {0} and {1}")]
    TwoClusters(ClusterName, ClusterName),
    /// More than one holder in one certificate.
    #[error("it names more than one holder")]
    TwoHolders,
    /// The same role twice.
    #[error("it names the role {0} twice")]
    RoleTwice(Role),
    /// A user without roles.
    #[error("it names a user without a role")]
    NoRole,
    /// A host that is not said to do anything.
    #[error("it names a host without the role of its agent")]
    NoAgentRole,
    /// A user's role for a machine, or an agent's for something that is no host.
    #[error("it gives a role to a holder of another kind")]
    RoleOfAnother,
    /// No user, no server and no host.
    #[error("it names neither a user nor a server nor a host")]
    Nobody,
}

impl Principal {
    /// The cluster that vouches for this principal.
    pub fn cluster(&self) -> &ClusterName {
        match self {
            Self::User { cluster, .. } | Self::Server { cluster, .. } | Self::Host { cluster, .. } => cluster,
        }
    }

    /// The name of the user, or the id of the server or host.
    pub fn name(&self) -> String {
        match self {
            Self::User { name, .. } => name.to_string(),
            Self::Server { id, .. } => id.to_string(),
            Self::Host { id, .. } => id.to_string(),
        }
    }

    /// What this principal is, when it is a machine of the cluster and not a user.
    pub fn system_role(&self) -> Option<SystemRole> {
        match self {
            Self::User { .. } => None,
            Self::Server { .. } => Some(SystemRole::Server),
            Self::Host { .. } => Some(SystemRole::Host),
        }
    }

    /// The names that say all this in a certificate.
    pub fn uris(&self) -> Vec<String> {
        match self {
            Self::User { cluster, name, roles } => {
                let user = format!("{SCHEME}{cluster}/user/{name}");
                let roles = roles.iter().map(|role| format!("{SCHEME}{cluster}/role/{role}"));
                std::iter::once(user).chain(roles).collect()
            }
            Self::Server { cluster, id } => vec![format!("{SCHEME}{cluster}/server/{id}")],
            Self::Host { cluster, id, role } => {
                vec![format!("{SCHEME}{cluster}/host/{id}"), format!("{SCHEME}{cluster}/agent-role/{role}")]
            }
        }
    }

    /// Reads the names back, in any order. Anything unexpected is an error.
    pub fn from_uris<'a>(uris: impl IntoIterator<Item = &'a str>) -> Result<Self, PrincipalError> {
        let mut parts = PrincipalParts::default();
        for uri in uris {
            parts.add(uri)?;
        }
        parts.into_principal()
    }
}

/// What the names of a certificate have said so far.
#[derive(Default)]
struct PrincipalParts {
    cluster: Option<ClusterName>,
    user: Option<UserName>,
    server: Option<ServerId>,
    host: Option<HostId>,
    roles: Vec<Role>,
    agent_role: Option<AgentRole>,
}

impl PrincipalParts {
    fn add(&mut self, uri: &str) -> Result<(), PrincipalError> {
        let unexpected = || PrincipalError::Unexpected(uri.into());
        let path = uri.strip_prefix(SCHEME).ok_or_else(unexpected)?;
        let parts: Vec<&str> = path.split('/').collect();
        let &[cluster, kind, value] = parts.as_slice() else { return Err(unexpected()) };
        self.set_cluster(cluster.parse()?)?;
        match kind {
            "user" => set_once(&mut self.user, value.parse()?),
            "server" => set_once(&mut self.server, value.parse()?),
            "host" => set_once(&mut self.host, host_id(value)?),
            "role" => self.add_role(value.parse()?),
            "agent-role" => set_once(&mut self.agent_role, agent_role(value)?),
            _ => Err(unexpected()),
        }
    }

    fn set_cluster(&mut self, cluster: ClusterName) -> Result<(), PrincipalError> {
        match &self.cluster {
            Some(first) if *first != cluster => Err(PrincipalError::TwoClusters(first.clone(), cluster)),
            _ => {
                self.cluster = Some(cluster);
                Ok(())
            }
        }
    }

    fn add_role(&mut self, role: Role) -> Result<(), PrincipalError> {
        if self.roles.contains(&role) {
            return Err(PrincipalError::RoleTwice(role));
        }
        self.roles.push(role);
        Ok(())
    }

    fn into_principal(self) -> Result<Principal, PrincipalError> {
        let cluster = self.cluster.ok_or(PrincipalError::Nobody)?;
        let no_roles = self.roles.is_empty();
        match (self.user, self.server, self.host, self.agent_role) {
            (Some(name), None, None, None) => {
                let roles = Roles::new(self.roles).map_err(|_| PrincipalError::NoRole)?;
                Ok(Principal::User { cluster, name, roles })
            }
            (None, Some(id), None, None) if no_roles => Ok(Principal::Server { cluster, id }),
            (None, None, Some(id), Some(role)) if no_roles => Ok(Principal::Host { cluster, id, role }),
            (None, None, Some(_), None) if no_roles => Err(PrincipalError::NoAgentRole),
            (None, None, None, _) => Err(PrincipalError::Nobody),
            (Some(_), None, None, _) | (None, Some(_), None, _) | (None, None, Some(_), _) => {
                Err(PrincipalError::RoleOfAnother)
            }
            _ => Err(PrincipalError::TwoHolders),
        }
    }
}

/// One host has one spelling, so that names can be compared as text.
fn host_id(value: &str) -> Result<HostId, NameError> {
    let id = value.parse::<HostId>().ok().filter(|id| id.to_string() == value);
    id.ok_or_else(|| NameError {
        given: value.into(),
        what: "host UUID",
        expected: "five groups of lower-case hex digits with \"-\" between them".into(),
    })
}

fn agent_role(value: &str) -> Result<AgentRole, NameError> {
    value.parse().map_err(|_| NameError {
        given: value.into(),
        what: "role of an agent",
        expected: AgentRole::ALL.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", "),
    })
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), PrincipalError> {
    match slot.replace(value) {
        Some(_) => Err(PrincipalError::TwoHolders),
        None => Ok(()),
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { cluster, name, roles } => write!(f, "user {name} ({roles}) of cluster {cluster}"),
            Self::Server { cluster, id } => write!(f, "server {id} of cluster {cluster}"),
            Self::Host { cluster, id, role } => write!(f, "host {id} ({role}) of cluster {cluster}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOST: &str = "refit://c/host/6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55";

    #[test]
    fn anything_unexpected_is_an_error() {
        use PrincipalError as E;
        type Case = (&'static [&'static str], fn(&E) -> bool);
        let cases: &[Case] = &[
            (&[], |e| *e == E::Nobody),
            (&["refit://c/role/admin"], |e| *e == E::Nobody),
            (&["refit://c/user/a"], |e| *e == E::NoRole),
            (&["refit://c/user/a", "refit://c/user/b", "refit://c/role/admin"], |e| *e == E::TwoHolders),
            (&["refit://c/user/a", "refit://c/user/a", "refit://c/role/admin"], |e| *e == E::TwoHolders),
            (&["refit://c/server/a", "refit://c/server/b"], |e| *e == E::TwoHolders),
            (&["refit://c/user/a", "refit://c/server/b", "refit://c/role/admin"], |e| *e == E::TwoHolders),
            (&["refit://c/server/b", "refit://c/role/admin"], |e| *e == E::RoleOfAnother),
            (&["refit://c/user/a", "refit://d/role/admin"], |e| matches!(e, E::TwoClusters(..))),
            (&["refit://c/user/a", "refit://c/role/root"], |e| matches!(e, E::Name(_))),
            (&["refit://c/user/a", "refit://c/role/server"], |e| matches!(e, E::Name(_))),
            (&["refit://c/user/a", "refit://c/role/admin", "refit://c/role/admin"], |e| {
                *e == E::RoleTwice(Role::Admin)
            }),
            (&["refit://c/user/a", "refit://c/role/admin", "https://example.com"], |e| {
                matches!(e, E::Unexpected(_))
            }),
            (&["refit://c/host/a", "refit://c/agent-role/node"], |e| matches!(e, E::Name(_))),
            (&["refit://c/host/6F1B0B5E-0c5a-4bbd-9d7e-2f1f0f6f3a55"], |e| matches!(e, E::Name(_))),
            (&[HOST], |e| *e == E::NoAgentRole),
            (&["refit://c/agent-role/node"], |e| *e == E::Nobody),
            (&[HOST, "refit://c/agent-role/root"], |e| matches!(e, E::Name(_))),
            (&[HOST, "refit://c/agent-role/node", "refit://c/agent-role/db"], |e| *e == E::TwoHolders),
            (&[HOST, "refit://c/agent-role/node", "refit://c/role/admin"], |e| *e == E::RoleOfAnother),
            (&[HOST, "refit://c/role/admin"], |e| *e == E::RoleOfAnother),
            (&[HOST, "refit://c/server/a"], |e| *e == E::TwoHolders),
            (&[HOST, "refit://c/agent-role/node", "refit://c/server/a"], |e| *e == E::TwoHolders),
            (&["refit://c/server/a", "refit://c/agent-role/node"], |e| *e == E::RoleOfAnother),
            (&["refit://c/user/a", "refit://c/role/admin", "refit://c/agent-role/node"], |e| {
                *e == E::RoleOfAnother
            }),
            (&["refit://c/thing/a"], |e| matches!(e, E::Unexpected(_))),
            (&["refit://c/user/a/b"], |e| matches!(e, E::Unexpected(_))),
            (&["refit://c/user"], |e| matches!(e, E::Unexpected(_))),
            (&["REFIT://c/user/a"], |e| matches!(e, E::Unexpected(_))),
            (&["refit://C/user/a"], |e| matches!(e, E::Name(_))),
            (&["refit:///user/a"], |e| matches!(e, E::Name(_))),
            (&["refit://c/user/"], |e| matches!(e, E::Name(_))),
            (&["refit://c/user/a?x"], |e| matches!(e, E::Name(_))),
            (&["refit://c:443/user/a"], |e| matches!(e, E::Name(_))),
        ];
        for (uris, expected) in cases {
            let error = Principal::from_uris(uris.iter().copied()).unwrap_err();
            assert!(expected(&error), "{uris:?}: {error:?}");
        }
    }

    fn principals() -> impl Strategy<Value = Principal> {
        let cluster = || "[a-z0-9][a-z0-9.-]{0,54}".prop_map(|text| text.parse::<ClusterName>().unwrap());
        let roles = proptest::sample::subsequence(Role::ALL.to_vec(), 1..=Role::ALL.len());
        let user = (cluster(), "[a-z0-9][a-z0-9._@-]{0,63}", roles).prop_map(|(cluster, name, roles)| {
            Principal::User { cluster, name: name.parse().unwrap(), roles: Roles::new(roles).unwrap() }
        });
        let server = (cluster(), "[a-z0-9][a-z0-9._-]{0,63}")
            .prop_map(|(cluster, id)| Principal::Server { cluster, id: id.parse().unwrap() });
        let role = proptest::sample::select(AgentRole::ALL);
        let host = (cluster(), any::<[u8; 16]>(), role).prop_map(|(cluster, id, role)| Principal::Host {
            cluster,
            id: HostId::new(uuid::Uuid::from_bytes(id)),
            role,
        });
        prop_oneof![user, server, host]
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_in_any_order(principal in principals(), turn in 0usize..8) {
            let mut uris = principal.uris();
            let turn = turn % uris.len();
            uris.rotate_left(turn);
            prop_assert_eq!(Principal::from_uris(uris.iter().map(String::as_str)).unwrap(), principal);
        }

        #[test]
        fn two_principals_are_never_one(first in principals(), second in principals()) {
            let (first, second) = (first.uris(), second.uris());
            let both = first.iter().chain(&second).map(String::as_str);
            prop_assert!(Principal::from_uris(both).is_err());
        }

        #[test]
        fn what_reads_is_what_was_written(uris in proptest::collection::vec(
            "(refit://(c|d)/(user|role|server|host|agent-role|x)/(a|admin|viewer|node|[0-9aA]{8}-0c5a-4bbd-9d7e-2f1f0f6f3a55|B|)(/|))|.{0,20}", 0..4,
        )) {
            if let Ok(principal) = Principal::from_uris(uris.iter().map(String::as_str)) {
                let (mut written, mut read) = (principal.uris(), uris);
                written.sort();
                read.sort();
                prop_assert_eq!(written, read);
            }
        }
    }
}
