//! Volumes by encrypted connections: with the programs that speak them, and with those that are not to get in.
#![cfg(feature = "tls")]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use fiche::volume::{FileDevice, Options, Volume};
use fiche::{Error, ReadAt, WriteAt};
use fiche_serve::{Address, Nbd, Server, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use self::common::succeeds;

/// An authority, and what it vouches for, in a folder with the names that programs look for.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn put(&self, folder: &Path, who: &str) {
        std::fs::create_dir_all(folder).unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![match who {
            "server" => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(folder.join("ca-cert.pem"), &self.pem).unwrap();
        std::fs::write(folder.join(format!("{who}-cert.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{who}-key.pem")), key.serialize_pem()).unwrap();
    }
}

const SIZE: u64 = 64 << 20;

struct Served {
    folder: tempfile::TempDir,
    volume: Arc<Volume>,
    server: Server,
}

impl Served {
    /// One on a socket, or on a port of this machine.
    fn new(by_port: bool, verifies: bool) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        authority.put(&folder.path().join("server"), "server");
        authority.put(&folder.path().join("client"), "client");
        let device = FileDevice::create(folder.path().join("volume")).unwrap();
        let volume = Arc::new(Volume::create(device, Options::new(SIZE)).unwrap());
        let certificates = folder.path().join("server");
        let tls = match verifies {
            true => Tls::open_for_known_clients(certificates),
            false => Tls::open(certificates),
        };
        let nbd = Nbd::default().device("", volume.clone()).tls(tls.unwrap());
        let address = match by_port {
            true => Address::Tcp("localhost:0".into()),
            false => Address::Unix(folder.path().join("socket")),
        };
        let server = nbd.listen(&address).unwrap();
        Served { folder, volume, server }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// For a client with what is in this folder.
    fn url(&self, certificates: &str) -> String {
        let certificates = self.folder.path().join(certificates);
        match self.server.local_addr() {
            Some(address) => format!(
                "nbds://localhost:{}/?tls-certificates={}",
                address.port(),
                certificates.display()
            ),
            None => format!(
                "nbds+unix:///?socket={}&tls-certificates={}",
                self.socket().display(),
                certificates.display()
            ),
        }
    }
}

/// Runs a program; `None` where it is not there, or cannot do this.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    let output = common::run(program, args)?;
    if String::from_utf8_lossy(&output.stderr).contains("TLS not supported") {
        println!("SKIP: {program} knows no TLS");
        return None;
    }
    Some(output)
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as u8
    };
    (0..len).map(|i| if i / 50_000 % 3 == 0 { 0 } else { next() }).collect()
}

#[test]
fn what_is_copied_in_and_out_is_the_same() {
    for by_port in [false, true] {
        let served = Served::new(by_port, false);
        let url = served.url("client");
        let Some(output) = run("nbdinfo", &["--json", &url]) else { return };
        let said = succeeds(&output);
        assert!(
            said.contains("\"TLS\": true") && said.contains("\"export-size\": 67108864"),
            "{said}"
        );
        let (from, to) = (served.folder.path().join("from"), served.folder.path().join("to"));
        let bytes = noise(SIZE as usize);
        std::fs::write(&from, &bytes).unwrap();
        let connections = if by_port { "--connections=1" } else { "--connections=4" };
        let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
        succeeds(&run("nbdcopy", &[connections, "--flush", from, &url]).unwrap());
        succeeds(&run("nbdcopy", &[connections, &url, to]).unwrap());
        assert!(std::fs::read(to).unwrap() == bytes);
        let mut whole = vec![0; SIZE as usize];
        served.volume.read_at(0, &mut whole).unwrap();
        assert!(whole == bytes);
    }
}

#[test]
fn qemu_reads_what_it_wrote() {
    let served = Served::new(true, true);
    let port = served.server.local_addr().unwrap().port();
    let tls = format!(
        "tls-creds-x509,id=tls,endpoint=client,dir={}",
        served.folder.path().join("client").display()
    );
    let image = format!("driver=nbd,host=localhost,port={port},tls-creds=tls");
    let mut args = vec!["--object", &tls, "--image-opts", &image];
    for command in [
        "write -P 0xab 0 1M",
        "write -P 0xcd 300001 70003",
        "aio_write -P 7 8M 4M",
        "aio_flush",
        "discard 9M 1M",
        "write -f -P 9 20M 4K",
        "read -P 0xab 0 300001",
        "read -P 0xcd 300001 70003",
        "read -P 7 8M 1M",
        "read -P 0 9M 1M",
    ] {
        args.extend(["-c", command]);
    }
    let Some(output) = run("qemu-io", &args) else { return };
    let said = succeeds(&output);
    assert!(!said.contains("verification failed"), "{said}");
    let mut piece = [0; 4096];
    served.volume.read_at(20 << 20, &mut piece).unwrap();
    assert_eq!(piece, [9; 4096]);
}

#[test]
fn who_is_not_known_is_not_let_in() {
    let served = Served::new(true, true);
    let folder = served.folder.path();
    Authority::new().put(&folder.join("stranger"), "client");
    std::fs::copy(folder.join("client/ca-cert.pem"), folder.join("stranger/ca-cert.pem")).unwrap();
    std::fs::create_dir(folder.join("nobody")).unwrap();
    std::fs::copy(folder.join("client/ca-cert.pem"), folder.join("nobody/ca-cert.pem")).unwrap();
    let Some(output) = run("nbdinfo", &["--size", &served.url("client")]) else { return };
    assert_eq!(succeeds(&output).trim(), SIZE.to_string());
    for who in ["stranger", "nobody"] {
        let output = run("nbdinfo", &["--size", &served.url(who)]).unwrap();
        assert!(!output.status.success(), "{who}: {}", String::from_utf8_lossy(&output.stdout));
    }
    // A client finds out as well who the server is.
    let other = Served::new(true, false);
    let url = other.url("client").replace(
        other.folder.path().join("client").to_str().unwrap(),
        folder.join("client").to_str().unwrap(),
    );
    assert!(!run("nbdinfo", &["--size", &url]).unwrap().status.success());
}

fn say(stream: &mut impl Write, parts: &[&[u8]]) {
    stream.write_all(&parts.concat()).unwrap();
}

fn take(stream: &mut impl Read, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

/// What is replied to an option, and its data.
fn replied(stream: &mut impl Read) -> (u32, Vec<u8>) {
    let head = take(stream, 20);
    assert_eq!(head[..8], 0x0003_E889_0455_65A9u64.to_be_bytes());
    let number = |at: usize| u32::from_be_bytes(head[at..][..4].try_into().unwrap());
    (number(12), take(stream, number(16) as usize))
}

fn connect(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(take(&mut stream, 18)[..16], *b"NBDMAGICIHAVEOPT");
    say(&mut stream, &[&3u32.to_be_bytes()]);
    stream
}

const GO: u32 = 7;
const STARTTLS: u32 = 5;
const ACK: u32 = 1;
const REQUIRED: u32 = 1 << 31 | 5;
const INVALID: u32 = 1 << 31 | 3;

#[test]
fn nothing_is_told_in_the_clear() {
    let served = Served::new(false, false);
    let mut stream = connect(&served.socket());
    // List, info, go, structured replies, contexts, and what nobody knows.
    for number in [3, 6, GO, 8, 9, 10, 99] {
        say(&mut stream, &[&option(number, &[0; 6])]);
        assert_eq!(replied(&mut stream).0, REQUIRED, "{number}");
    }
    say(&mut stream, &[&option(STARTTLS, b"now")]);
    assert_eq!(replied(&mut stream).0, INVALID);
    // The old way has no errors: it ends.
    say(&mut stream, &[&option(1, b"")]);
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    if let Some(output) =
        run("nbdinfo", &[&format!("nbd+unix:///?socket={}", served.socket().display())])
    {
        assert!(!output.status.success());
    }
}

#[test]
fn what_came_in_the_clear_is_not_taken_for_secret() {
    let served = Served::new(false, false);
    let mut stream = connect(&served.socket());
    // In one piece, as who sits in the middle could send it.
    say(&mut stream, &[&option(STARTTLS, b""), &option(8, b"")]);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"", "it is not even acknowledged");
}

type Secret = StreamOwned<ClientConnection, UnixStream>;

/// Encrypted, with the files of this folder.
fn encrypt(mut stream: UnixStream, folder: &Path) -> Secret {
    say(&mut stream, &[&option(STARTTLS, b"")]);
    assert_eq!(replied(&mut stream).0, ACK);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(folder.join("ca-cert.pem")).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let chain = CertificateDer::pem_file_iter(folder.join("client-cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("client-key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, stream)
}

fn go(stream: &mut Secret) {
    say(stream, &[&option(GO, &[0; 6])]);
    while replied(stream).0 != ACK {}
}

fn request(command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    [
        &0x2560_9513u32.to_be_bytes()[..],
        &0u16.to_be_bytes(),
        &command.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &len.to_be_bytes(),
    ]
    .concat()
}

/// The number of the error and the cookie of a simple reply.
fn simple(stream: &mut impl Read) -> (u32, u64) {
    let reply = take(stream, 16);
    assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
    (
        u32::from_be_bytes(reply[4..8].try_into().unwrap()),
        u64::from_be_bytes(reply[8..].try_into().unwrap()),
    )
}

#[test]
fn who_sends_without_reading_is_not_waited_for() {
    let served = Served::new(false, true);
    let bytes = noise(1 << 20);
    for i in 0..16 {
        served.volume.write_at(i << 20, &bytes).unwrap();
    }
    let client = served.folder.path().join("client");
    let mut stream = encrypt(connect(&served.socket()), &client);
    // It is the same connection, but nothing is required any more, and it cannot be done twice.
    say(&mut stream, &[&option(STARTTLS, b"")]);
    assert_eq!(replied(&mut stream).0, INVALID);
    go(&mut stream);
    // More is to be read than any buffer holds, and none of it is until everything was sent.
    for i in 0..16u64 {
        say(&mut stream, &[&request(0, i, i << 20, 1 << 20)]);
        if i < 4 {
            // So that it comes alone, and is answered by who reads.
            std::thread::sleep(Duration::from_millis(30));
        }
    }
    for i in 16..40 {
        say(&mut stream, &[&request(1, i, i << 20, 1 << 20), &bytes]);
    }
    let mut done = Vec::new();
    for _ in 0..40 {
        let (error, cookie) = simple(&mut stream);
        assert_eq!(error, 0);
        if cookie < 16 {
            assert!(take(&mut stream, 1 << 20) == bytes, "{cookie}");
        }
        done.push(cookie);
    }
    done.sort_unstable();
    assert_eq!(done, Vec::from_iter(0..40));
    let mut whole = vec![0; 1 << 20];
    served.volume.read_at(39 << 20, &mut whole).unwrap();
    assert!(whole == bytes);
    // Who says goodbye is told goodbye.
    say(&mut stream, &[&request(2, 0, 0, 0)]);
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn what_was_changed_on_the_way_ends_the_connection() {
    let served = Served::new(false, false);
    let client = served.folder.path().join("client");
    let mut stream = encrypt(connect(&served.socket()), &client);
    go(&mut stream);
    say(&mut stream, &[&request(1, 1, 0, 4096), &[7; 4096]]);
    assert_eq!(simple(&mut stream), (0, 1));
    // A record that nobody has sealed.
    stream.sock.write_all(&[&[23, 3, 3, 16, 0][..], &[9; 4096]].concat()).unwrap();
    assert!(stream.sock.read_to_end(&mut Vec::new()).is_ok());
    // And handshakes that break off, or are none.
    for i in 0..200usize {
        let mut stream = connect(&served.socket());
        say(&mut stream, &[&option(STARTTLS, b"")]);
        assert_eq!(replied(&mut stream).0, ACK);
        let bytes = noise(60_000 + i)[60_000 - i..].to_vec();
        let hello = [&[22, 3, 1, (i >> 4) as u8, i as u8][..], &bytes].concat();
        let _ = stream.write_all(if i % 2 == 0 { &hello } else { &bytes });
        let _ = stream.shutdown(std::net::Shutdown::Write);
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{i}: no end");
        }
    }
    let mut stream = encrypt(connect(&served.socket()), &client);
    go(&mut stream);
    say(&mut stream, &[&request(0, 2, 0, 4096)]);
    assert_eq!(simple(&mut stream), (0, 2));
    assert_eq!(take(&mut stream, 4096), [7; 4096]);
    served.server.stop().unwrap();
}

#[test]
fn files_that_are_not_what_they_should_be_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = |folder: &Path, verifies: bool| {
        let tls = match verifies {
            true => Tls::open_for_known_clients(folder),
            false => Tls::open(folder),
        };
        tls.unwrap_err()
    };
    let error = said(folder, false);
    assert!(
        matches!(error, Error::Io(_)) && error.to_string().contains("server-cert.pem"),
        "{error}"
    );
    let authority = Authority::new();
    authority.put(folder, "server");
    Tls::open_for_known_clients(folder).unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    for (name, text, verifies) in [
        ("server-cert.pem", "this is no certificate", false),
        ("server-key.pem", "", false),
        ("ca-cert.pem", "-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n", true),
        ("ca-cert.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", true),
    ] {
        let before = std::fs::read_to_string(folder.join(name)).unwrap();
        put(name, text);
        let error = said(folder, verifies);
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        put(name, &before);
    }
    std::fs::remove_file(folder.join("ca-cert.pem")).unwrap();
    Tls::open(folder).unwrap();
    assert!(said(folder, true).to_string().contains("ca-cert.pem"));
    // The key of another one.
    put("server-key.pem", &KeyPair::generate().unwrap().serialize_pem());
    let error = said(folder, false);
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}
