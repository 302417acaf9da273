//! Whether a certificate was signed by an authority, for a purpose, and is valid now.

use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage};

use crate::{Certificate, Error, Result};

/// What a certificate may be used for. Unlike webpki's own, a certificate must say so.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Client,
    Server,
}

impl Purpose {
    fn usage(self) -> KeyUsage {
        // 1.3.6.1.5.5.7.3.2 and 1.3.6.1.5.5.7.3.1
        KeyUsage::required(match self {
            Self::Client => &[0x2b, 6, 1, 5, 5, 7, 3, 2],
            Self::Server => &[0x2b, 6, 1, 5, 5, 7, 3, 1],
        })
    }
}

/// Why a certificate is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed(String),
    /// No authority here has the name of its issuer.
    OtherIssuer,
    /// An authority here has that name, and did not sign it.
    NotSigned,
    Expired(Timestamp),
    NotYetValid(Timestamp),
    WrongPurpose,
}

pub(crate) fn anchor(authority: &Certificate) -> Result<TrustAnchor<'static>> {
    if !authority.is_authority() {
        return Err(Error::Certificate("it is not one of an authority".into()));
    }
    let anchor = webpki::anchor_from_trusted_cert(authority.der());
    anchor.map(|anchor| anchor.to_owned()).map_err(|error| Error::Certificate(error.to_string()))
}

/// Accepts a certificate that one of the anchors signed itself. Authorities here sign no others, so what
/// else a peer sends along is of no use in proving anything, and is not looked at.
pub(crate) fn check(
    leaf: &CertificateDer<'_>,
    anchors: &[TrustAnchor<'_>],
    purpose: Purpose,
    now: UnixTime,
) -> std::result::Result<(), Refusal> {
    let malformed = |error: webpki::Error| Refusal::Malformed(error.to_string());
    let parsed = EndEntityCert::try_from(leaf).map_err(malformed)?;
    let Err(error) = verify(&parsed, anchors, purpose.usage(), now) else { return Ok(()) };

    // Refused. From here on only the reason is looked for. webpki names the first thing it stumbles
    // over, which for a stranger's certificate may be its date; so find out first whose it is.
    let certificate = Certificate::from_der(leaf).map_err(|error| Refusal::Malformed(error.to_string()))?;
    let when_valid = unix(certificate.not_after());
    match verify(&parsed, anchors, AnyPurpose, when_valid) {
        Err(webpki::Error::UnknownIssuer) => return Err(Refusal::OtherIssuer),
        Err(webpki::Error::InvalidSignatureForPublicKey) => return Err(Refusal::NotSigned),
        Err(error) => return Err(malformed(error)),
        Ok(()) => {}
    }
    Err(match error {
        webpki::Error::CertExpired { .. } => Refusal::Expired(certificate.not_after()),
        webpki::Error::CertNotValidYet { .. } => Refusal::NotYetValid(certificate.not_before()),
        webpki::Error::RequiredEkuNotFoundContext(_) => Refusal::WrongPurpose,
        other => malformed(other),
    })
}

fn verify(
    leaf: &EndEntityCert<'_>,
    anchors: &[TrustAnchor<'_>],
    usage: impl ExtendedKeyUsageValidator,
    now: UnixTime,
) -> std::result::Result<(), webpki::Error> {
    let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    leaf.verify_for_usage(algorithms.all, anchors, &[], now, usage, None, None).map(|_| ())
}

/// The time as webpki wants it. A clock before 1970 finds every certificate not yet valid.
pub(crate) fn unix(at: Timestamp) -> UnixTime {
    let seconds = u64::try_from(at.as_second()).unwrap_or_default();
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

struct AnyPurpose;

impl ExtendedKeyUsageValidator for AnyPurpose {
    fn validate(&self, _: KeyPurposeIdIter<'_, '_>) -> std::result::Result<(), webpki::Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_1970_is_no_panic() {
        assert_eq!(unix(Timestamp::MIN).as_secs(), 0);
        assert_eq!(unix("1970-01-01T00:01:00Z".parse().unwrap()).as_secs(), 60);
    }
}
