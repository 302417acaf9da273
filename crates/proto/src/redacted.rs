//! `Debug` of the messages that carry a secret, which are excluded from the derive in `build.rs`.

use std::fmt;

use crate::agent::v1::JoinRequest;
use crate::auth::v1::CreateWebLoginResponse;
use crate::nodes::v1::CreateTokenResponse;

impl fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinRequest")
            .field("host_id", &self.host_id)
            .field("hostname", &self.hostname)
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CreateTokenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateTokenResponse")
            .field("roles", &self.roles)
            .field("expires", &self.expires)
            .field("ca_pin", &self.ca_pin)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CreateWebLoginResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateWebLoginResponse").field("expires", &self.expires).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_shows_its_token() {
        let token = || "a-secret-token".to_owned();
        let join = JoinRequest { token: token(), hostname: "web".into(), ..JoinRequest::default() };
        let made =
            CreateTokenResponse { token: token(), ca_pin: "pin".into(), ..CreateTokenResponse::default() };
        let login = CreateWebLoginResponse { code: token(), ..CreateWebLoginResponse::default() };
        let shown = format!("{join:?} {made:?} {login:?}");
        assert!(shown.contains("web") && shown.contains("pin") && !shown.contains("secret"), "{shown}");
    }
}
