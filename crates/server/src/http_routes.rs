//! The HTTP paths that the TLS port serves besides gRPC: one table, as `access` has one of the gRPC methods. `dispatch`
//! answers by it. A path that is in no row is 404, and a method that its row does not name is 405.

use axum::http::StatusCode;
use refit_identity::{AuthError, Principal};

use crate::access::Rule;

/// One row: a path, and who may ask it for what.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The path. A part in braces stands for any text, slashes included; a row has at most one.
    pub pattern: &'static str,
    /// The methods that are answered.
    pub methods: &'static [&'static str],
    /// Who may ask.
    pub who: Who,
    /// What keeps one client from taking too much.
    pub limit: Limit,
    pub(crate) endpoint: Endpoint,
}

/// Who may ask for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Whoever can reach the port.
    Anyone,
    /// Whoever is signed in to the dashboard, which shows everybody else how to sign in.
    Session,
    /// Whoever shows a client certificate that the rule allows.
    Certificate(Rule),
}

/// What keeps one client from taking too much of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Nothing: an answer costs no more than refusing it.
    None,
    /// Requests of one address (`find_requests_per_second`).
    RequestsPerAddress,
    /// Downloads that are under way at once.
    Downloads,
    /// Refused attempts of one address to sign in.
    RefusedSignIns,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Find,
    Health,
    Artifacts,
    Dashboard,
    ChannelVersion,
    ChannelCritical,
}

const READ: &[&str] = &["GET", "HEAD"];
const READ_AND_SEND_FORMS: &[&str] = &["GET", "HEAD", "POST"];

const fn public(pattern: &'static str, endpoint: Endpoint, limit: Limit) -> Route {
    Route { pattern, methods: READ, who: Who::Anyone, limit, endpoint }
}

const fn dashboard(pattern: &'static str) -> Route {
    Route {
        pattern,
        methods: READ_AND_SEND_FORMS,
        who: Who::Session,
        limit: Limit::RefusedSignIns,
        endpoint: Endpoint::Dashboard,
    }
}

/// The table. The first row that matches a path holds, so channels, whose names may hold slashes, are last.
pub const ROUTES: &[Route] = &[
    // Under the path of the version, and where older clients look.
    public("/v1/webapi/find", Endpoint::Find, Limit::RequestsPerAddress),
    public("/webapi/find", Endpoint::Find, Limit::RequestsPerAddress),
    public("/healthz", Endpoint::Health, Limit::None),
    public("/v1/artifacts/{path}", Endpoint::Artifacts, Limit::Downloads),
    dashboard("/web"),
    dashboard("/web/{page}"),
    public("/v1/{channel}/version", Endpoint::ChannelVersion, Limit::None),
    public("/v1/{channel}/critical", Endpoint::ChannelCritical, Limit::None),
];

/// The row of a path, and the text that its braces stand for.
pub(crate) fn route_of(path: &str) -> Option<(&'static Route, &str)> {
    ROUTES.iter().find_map(|route| Some((route, route.captured(path)?)))
}

impl Who {
    /// Refuses a path to a caller by its certificate. Sessions are the dashboard's own.
    pub(crate) fn check(
        self,
        principal: impl FnOnce() -> Result<Principal, AuthError>,
    ) -> Result<(), (StatusCode, String)> {
        let Self::Certificate(rule) = self else { return Ok(()) };
        match principal() {
            Ok(principal) if rule.allows(&principal) => Ok(()),
            Ok(principal) => {
                let why = format!("{:?} may not ask for this; ask an administrator", principal.name());
                Err((StatusCode::FORBIDDEN, why))
            }
            Err(error) => Err((StatusCode::UNAUTHORIZED, error.to_string())),
        }
    }
}

impl Route {
    fn captured<'p>(&self, path: &'p str) -> Option<&'p str> {
        let Some((before, rest)) = self.pattern.split_once('{') else {
            return (path == self.pattern).then_some("");
        };
        let (_, behind) = rest.split_once('}')?;
        path.strip_prefix(before)?.strip_suffix(behind)
    }

    /// The value of the header `Allow`.
    pub(crate) fn allow(&self) -> String {
        self.methods.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use refit_identity::{Role, Roles};
    use refit_types::ChannelName;

    use super::*;

    #[test]
    fn the_first_row_that_matches_holds() {
        let found = |path| route_of(path).map(|(route, captured)| (route.endpoint, captured));
        assert_eq!(found("/v1/webapi/find"), Some((Endpoint::Find, "")));
        assert_eq!(found("/v1/stable/version"), Some((Endpoint::ChannelVersion, "stable")));
        assert_eq!(found("/v1/stable/cloud/critical"), Some((Endpoint::ChannelCritical, "stable/cloud")));
        assert_eq!(found("/v1/artifacts/x/version"), Some((Endpoint::Artifacts, "x/version")));
        assert_eq!(found("/web/rollout/prod"), Some((Endpoint::Dashboard, "rollout/prod")));
        for nothing in
            ["", "/", "/v1", "/v1/", "/v1/version", "/v1/stable", "/v1/stable/versions", "/website"]
        {
            assert_eq!(found(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_rule_of_certificates_is_asked_for_every_role() {
        let user = |role: Role| Principal::User {
            cluster: "example".parse().unwrap(),
            name: "alice".parse().unwrap(),
            roles: Roles::from(role),
        };
        let who = Who::Certificate(Rule::Users(&[Role::Admin, Role::VersionEditor]));
        for role in Role::ALL {
            let status = who.check(|| Ok(user(role))).err().map(|(status, _)| status);
            let may = matches!(role, Role::Admin | Role::VersionEditor);
            assert_eq!(status, (!may).then_some(StatusCode::FORBIDDEN), "{role}");
        }
        let nobody =
            who.check(|| Err(AuthError::Missing { cluster: "example".parse().unwrap() })).unwrap_err();
        assert_eq!(nobody.0, StatusCode::UNAUTHORIZED);
        for who in [Who::Anyone, Who::Session] {
            assert_eq!(who.check(|| panic!("nobody is asked for a certificate")), Ok(()));
        }
    }

    #[test]
    fn no_new_channel_can_be_hidden_by_a_row() {
        for route in ROUTES {
            let below = route.pattern.strip_prefix("/v1").unwrap_or(route.pattern);
            let first = below.split('/').nth(1).unwrap_or_default();
            let is_reserved = first.starts_with('{') || first.parse::<ChannelName>().is_err();
            assert!(
                is_reserved,
                "reserve {first:?} in refit-types: a channel of that name cannot be reached"
            );
        }
    }
}
