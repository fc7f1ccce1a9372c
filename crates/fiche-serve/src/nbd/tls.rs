//! Connections that nobody on the way can read or change: TLS, by rustls.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fiche::{Error, Result};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::locked;
use super::stream::Socket;

/// Who a server is, and whom it lets in: connections to one that has it are encrypted, by TLS 1.2 or 1.3 with certificates, or
/// nothing is served on them.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

impl Tls {
    /// Of a folder with the files that QEMU, libnbd and nbdkit look for: the server's certificate, and those between it and one that clients know,
    /// in `server-cert.pem`, and its private key in `server-key.pem`.
    ///
    /// # Errors
    /// [`Error::Io`] when they cannot be read, and [`Error::Invalid`] when they are not what they should be, or do not belong
    /// together; each says which file.
    pub fn open(folder: impl AsRef<Path>) -> Result<Tls> {
        Tls::new(folder.as_ref(), false)
    }

    /// The same, for clients only that have a certificate of one of the authorities in `ca-cert.pem`.
    ///
    /// # Errors
    /// Those of [`open`](Tls::open).
    pub fn open_for_known_clients(folder: impl AsRef<Path>) -> Result<Tls> {
        Tls::new(folder.as_ref(), true)
    }

    fn new(folder: &Path, are_known: bool) -> Result<Tls> {
        let (own, key) = (folder.join("server-cert.pem"), folder.join("server-key.pem"));
        let chain = certificates(&own)?;
        let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| unread(&key, error))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(folder, error))?;
        let builder = if are_known {
            let file = folder.join("ca-cert.pem");
            let mut roots = RootCertStore::empty();
            for certificate in certificates(&file)? {
                roots.add(certificate).map_err(|error| wrong(&file, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder
                .with_client_cert_verifier(verifier.build().map_err(|error| wrong(&file, error))?)
        } else {
            builder.with_no_client_auth()
        };
        let mut config =
            builder.with_single_cert(chain, private).map_err(|error| wrong(&own, error))?;
        // Connections last: nobody would come back with a ticket.
        config.send_tls13_tickets = 0;
        Ok(Tls { config: Arc::new(config) })
    }

    /// Agrees with a client on keys.
    pub(super) fn accept(&self, socket: &mut Socket) -> io::Result<Channel> {
        let mut connection =
            ServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            if connection.complete_io(socket)? == (0, 0) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Channel {
            connection: Arc::new(Mutex::new(connection)),
            received: Vec::new(),
            left: 0..0,
            sealed: Vec::new(),
        })
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|error| unread(file, error))?;
    if all.is_empty() {
        return Err(unread(file, pem::Error::NoItemsFound));
    }
    Ok(all)
}

fn unread(file: &Path, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(error) => {
            Error::Io(io::Error::new(error.kind(), format!("{}: {error}", file.display())))
        }
        pem::Error::NoItemsFound => wrong(file, "nothing of that kind is in it"),
        error => wrong(file, error),
    }
}

fn wrong(file: &Path, why: impl std::fmt::Display) -> Error {
    Error::Invalid { what: format!("{}: {why}", file.display()).into() }
}

/// What encrypts one connection. Of its clones one reads and one writes; neither has the keys while it waits for the other side, so that who reads
/// goes on while who writes cannot.
pub(super) struct Channel {
    connection: Arc<Mutex<ServerConnection>>,
    /// What was received and not yet decrypted: of `received` what is at `left`.
    received: Vec<u8>,
    left: Range<usize>,
    /// What is about to be sent.
    sealed: Vec<u8>,
}

impl Clone for Channel {
    /// Without what is under way in this one.
    fn clone(&self) -> Channel {
        Channel {
            connection: self.connection.clone(),
            received: Vec::new(),
            left: 0..0,
            sealed: Vec::new(),
        }
    }
}

/// Bytes that are received, or encrypted and sent, at a time: four records.
const PIECE: usize = 64 << 10;

impl Channel {
    /// Whether there is something to read that need not be waited for, perhaps.
    pub fn has_some(&self) -> bool {
        !self.left.is_empty()
    }

    pub fn read(&mut self, socket: &mut Socket, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            let mut connection = locked(&self.connection);
            while filled < buf.len() {
                match connection.reader().read(&mut buf[filled..]) {
                    Ok(0) => return Ok(filled),
                    Ok(n) => filled += n,
                    // What came before is told first: the next one fails again.
                    Err(_) if filled > 0 && self.left.is_empty() => break,
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    Err(_) if self.left.is_empty() => break,
                    Err(_) => {
                        let mut left = &self.received[self.left.clone()];
                        self.left.start += connection.read_tls(&mut left)?;
                        connection.process_new_packets().map_err(io::Error::other)?;
                    }
                }
            }
            if filled > 0 || buf.is_empty() {
                return Ok(filled);
            }
            drop(connection);
            self.received.resize(PIECE, 0);
            self.left = 0..socket.read(&mut self.received)?;
            if self.left.is_empty() {
                // The end: whether it was announced is known to who looks.
                locked(&self.connection).read_tls(&mut io::empty())?;
            }
        }
    }

    pub fn write(&mut self, socket: &mut Socket, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(PIECE)];
        let written = locked(&self.connection).writer().write(bytes)?;
        self.send(socket)?;
        Ok(written)
    }

    /// Encrypts bytes, and appends them as they are to be sent.
    pub fn seal(&mut self, bytes: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = locked(&self.connection);
        connection.writer().write_all(bytes)?;
        while connection.wants_write() {
            connection.write_tls(sealed)?;
        }
        Ok(())
    }

    /// Tells the other side that nothing follows.
    pub fn finish(&mut self, socket: &mut Socket) -> io::Result<()> {
        locked(&self.connection).send_close_notify();
        self.send(socket)
    }

    fn send(&mut self, socket: &mut Socket) -> io::Result<()> {
        self.sealed.clear();
        let mut connection = locked(&self.connection);
        while connection.wants_write() {
            connection.write_tls(&mut self.sealed)?;
        }
        drop(connection);
        socket.write_all(&self.sealed)
    }
}
