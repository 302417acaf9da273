//! The stylesheet, script and icon, compiled in and served with a version in their address.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::response::Refusal;

const FILES: [(&str, &str, &str); 3] = [
    ("refit.css", "text/css; charset=utf-8", include_str!("assets/refit.css")),
    ("refit.js", "text/javascript; charset=utf-8", include_str!("assets/refit.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// A digest of the files, part of their addresses: a browser may cache them until it changes.
pub(super) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let mut hash = Sha256::new();
        FILES.iter().for_each(|(_, _, text)| hash.update(text));
        HEXLOWER.encode(&hash.finalize()).chars().take(12).collect()
    });
    &VERSION
}

/// A file that pages need, for anyone.
pub(super) fn answer(name: &str) -> Result<Response<Body>, Refusal> {
    let file = FILES.iter().find(|(known, _, _)| *known == name);
    let (_, kind, text) = file.ok_or_else(|| Refusal::NotFound("There is no such file.".into()))?;
    let mut response = Response::new(Body::from(*text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    Ok(response)
}
