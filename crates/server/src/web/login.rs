//! Signing in by a single-use code, and signing out.

use std::time::Instant;

use askama::Template;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};

use super::request::{COOKIE, PageRequest};
use super::response::{Frame, Refusal, redirect, rendered, sentence};
use super::{SignInError, Web};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: Frame,
}

impl Web {
    /// Asks for a click, so that link previews, for example of a chat, do not use the code up.
    pub(super) fn show_sign_in(&self, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        rendered(&SignInPage { frame: request.frame(self, "sign-in", "Sign in") })
    }

    pub(super) async fn sign_in(&self, request: &PageRequest, code: &str) -> Result<Response<Body>, Refusal> {
        let (address, now) = (request.peer.address, Instant::now());
        self.refused.check(address.ip(), now).map_err(Refusal::TooMany)?;
        let trust = self.authorities.current().trust.clone();
        let (secret, session) = match self.sessions.sign_in(code, &trust, &self.events).await {
            Ok(signed_in) => signed_in,
            Err(SignInError::Store(error)) => return Err(error.into()),
            Err(error @ SignInError::Full) => return Err(Refusal::Conflict(sentence(&error.to_string()))),
            Err(error) => {
                self.refused.charge(address.ip(), now);
                let what = sentence(&error.to_string());
                return Err(Refusal::Forbidden(format!("{what} Ask for a new one: refitctl web login")));
            }
        };
        tracing::info!(target: "audit", by = session.user, from = %address, until = %session.expires, "signed in to the dashboard");
        let left = session.expires.duration_since((self.now)()).as_secs().max(0);
        Ok(with_cookie(redirect("/web/"), &secret, left))
    }

    pub(super) async fn sign_out(&self, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        let user = request.posted()?;
        self.sessions.sign_out(&user.secret, &user.session, &self.events).await?;
        tracing::info!(target: "audit", by = user.session.user, from = %request.peer.address, "signed out of the dashboard");
        Ok(with_cookie(redirect("/web/"), "", 0))
    }
}

fn with_cookie(mut response: Response<Body>, secret: &str, seconds: i64) -> Response<Body> {
    let cookie = format!("{COOKIE}={secret}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict");
    if let Ok(mut cookie) = HeaderValue::try_from(cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
