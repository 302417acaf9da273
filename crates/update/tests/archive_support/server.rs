//! A small HTTPS server that fails on request: one thread, one request for each connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use refit_testbed::Certificates;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// What was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Counted from 0, over all addresses.
    pub number: usize,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Where the range begins that was asked for.
    pub fn from(&self) -> usize {
        let range = self.header("range").and_then(|range| range.strip_prefix("bytes="));
        range.map_or(0, |range| range.strip_suffix('-').unwrap().parse().unwrap())
    }
}

pub trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

pub struct Server {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    certificates: Certificates,
}

impl Server {
    /// Answers every request by the function, which writes status line and all; then the connection ends.
    pub fn start(answer: impl Fn(&Asked, &mut dyn Connection) + Send + Sync + 'static) -> Self {
        let certificates = Certificates::new();
        let chain = vec![CertificateDer::from_pem_file(certificates.server_cert()).unwrap()];
        let key = PrivateKeyDer::from_pem_file(certificates.server_key()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (config, answer, log) = (Arc::new(config), Arc::new(answer), Arc::clone(&asked));
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (config, answer, log) = (Arc::clone(&config), Arc::clone(&answer), Arc::clone(&log));
                thread::spawn(move || serve(connection, config, &log, &*answer));
            }
        });
        Self { address, asked, certificates }
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// For a client that trusts this server.
    pub fn trust(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.certificates.ca()).unwrap()).unwrap();
        client(roots)
    }

    /// The certificate that a client has to trust.
    pub fn ca(&self) -> std::path::PathBuf {
        self.certificates.ca()
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

pub fn client(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn serve(
    tcp: TcpStream,
    config: Arc<ServerConfig>,
    log: &Mutex<Vec<Asked>>,
    answer: &dyn Fn(&Asked, &mut dyn Connection),
) {
    let mut reader = BufReader::new(StreamOwned::new(ServerConnection::new(config).unwrap(), tcp));
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(2..) if line.trim_end().is_empty() => break,
            Ok(1..) => lines.push(line.trim_end().to_owned()),
            _ => return,
        }
    }
    let Some(path) = lines.first().and_then(|line| line.split(' ').nth(1)).map(String::from) else { return };
    let headers = lines[1..].iter().filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let asked = {
        let mut log = log.lock().unwrap();
        let asked = Asked { number: log.len(), path, headers };
        log.push(asked.clone());
        asked
    };
    let mut connection = reader.into_inner();
    answer(&asked, &mut connection);
    connection.conn.send_close_notify();
    let _ = connection.flush();
}
