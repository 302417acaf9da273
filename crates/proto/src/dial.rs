//! Opens the TLS connection to a control plane. Used by agents, `refitctl` and load generators, so that all of them
//! explain a failure alike.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, OtherError};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Detects a server that vanished without closing the connection.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Not `HOST:PORT`.
    #[error("{0:?} is not HOST:PORT")]
    Address(String),
    /// The TLS configuration does not trust the server.
    #[error("{address}: {reason}")]
    Untrusted {
        /// Where.
        address: String,
        /// What is wrong with its certificate.
        reason: String,
    },
    /// The connection was refused or timed out, or the server does not speak TLS.
    #[error("{address}: {reason}")]
    Connect {
        /// Where.
        address: String,
        /// What went wrong, down to the first cause.
        reason: String,
    },
}

/// Connects to a control plane at `address` (`HOST:PORT`), which must prove to be `name` under `tls`.
pub async fn dial(
    address: &str,
    name: ServerName<'static>,
    mut tls: ClientConfig,
) -> Result<Channel, DialError> {
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(tls));
    let target = address.to_owned();
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|_| DialError::Address(address.to_owned()))?
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY);
    let connect = tower::service_fn(move |_: Uri| {
        let (connector, name, target) = (connector.clone(), name.clone(), target.clone());
        async move {
            let stream = TcpStream::connect(&target).await?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(TokioIo::new(connector.connect(name, stream).await?))
        }
    });
    endpoint.connect_with_connector(connect).await.map_err(|error| explain(address.to_owned(), &error))
}

/// Finds the root cause, because the message of a certificate verifier is only there.
fn explain(address: String, error: &(dyn std::error::Error + 'static)) -> DialError {
    let mut cause = error;
    loop {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        match inner.and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(refused)))) => {
                return DialError::Untrusted { address, reason: refused.to_string() };
            }
            Some(refused @ rustls::Error::InvalidCertificate(_)) => {
                return DialError::Untrusted { address, reason: refused.to_string() };
            }
            _ => {}
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => return DialError::Connect { address, reason: cause.to_string() },
        }
    }
}
