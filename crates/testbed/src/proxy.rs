//! A TCP proxy that drops or cuts connections, to test behaviour on a broken network.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const UNLIMITED: i64 = i64::MAX;

/// Forwards a connection and cuts it where a test asks for it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    answers: Arc<AtomicI64>,
    blocked: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Passes everything on to `endpoint`, a host and port.
    pub async fn to(endpoint: String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let answers = Arc::new(AtomicI64::new(UNLIMITED));
        let left = Arc::clone(&answers);
        let (blocked, is_blocked) = watch::channel(false);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (endpoint, left) = (endpoint.clone(), Arc::clone(&left));
                let (mut blocks, mut opens) = (is_blocked.clone(), is_blocked.clone());
                tokio::spawn(async move {
                    let _ = opens.wait_for(|blocked| !*blocked).await;
                    if let Ok(server) = TcpStream::connect(endpoint).await {
                        // Data in transit when the network is blocked is lost.
                        let (mut client, mut server) = (client, server);
                        let blocked = async { drop(blocks.wait_for(|blocked| *blocked).await) };
                        tokio::select! {
                            () = blocked => {}
                            () = pass(&mut client, &mut server, &left) => return,
                        }
                        let _ = opens.wait_for(|blocked| !*blocked).await;
                    }
                });
            }
        });
        Self { address, answers, blocked, task }
    }

    /// Blocks or unblocks the network: while blocked, data is dropped and connections stay open.
    pub fn set_blocked(&self, blocked: bool) {
        self.blocked.send_replace(blocked);
    }

    /// Host and port to connect to instead.
    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Cuts the connection after that many more bytes from the server. Later connections are not affected.
    pub fn cut_after(&self, bytes: u32) {
        self.answers.store(bytes.into(), Ordering::SeqCst);
    }

    /// Whether the cut that was asked for has happened.
    pub fn has_cut(&self) -> bool {
        self.answers.load(Ordering::SeqCst) > i64::from(u32::MAX)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: &mut TcpStream, server: &mut TcpStream, left: &AtomicI64) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let answers = async {
        let mut buffer = [0; 4096];
        while let Ok(size @ 1..) = from_server.read(&mut buffer).await {
            let size = i64::try_from(size).unwrap_or(UNLIMITED);
            if left.load(Ordering::SeqCst) != UNLIMITED && left.fetch_sub(size, Ordering::SeqCst) < size {
                left.store(UNLIMITED, Ordering::SeqCst);
                return;
            }
            if to_client.write_all(&buffer[..size as usize]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = requests => {}
        () = answers => {}
    }
}
