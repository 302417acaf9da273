use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Notices a server that is gone without a word.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Not `HOST:PORT`.
    #[error("{0:?} is not HOST:PORT")]
    Address(String),
    /// Nobody there, or not whom the TLS configuration trusts.
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
    endpoint
        .connect_with_connector(connect)
        .await
        .map_err(|error| DialError::Connect { address: address.to_owned(), reason: first_cause(&error) })
}

fn first_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
