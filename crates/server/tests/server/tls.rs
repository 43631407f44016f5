//! The doors with TLS in a real server: who is admitted, the reasons for refusals, and certificates replaced at
//! run time. Each run makes new certificates.

use crate::harness::{Client, Folder, REPLY_MS_MAX, Server, comes_true, command, numbered, strand};
use crate::pack4::frame;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A certificate authority of the test.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as files.
pub struct Identity {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("randomness");
        let pem = params.self_signed(&key).expect("its own key").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }
    /// Signs a certificate for 127.0.0.1. The files are named after `name`.
    pub fn sign(&self, folder: &Folder, name: &str, year_of_end: i32) -> Identity {
        let (params, key) = Identity::params(name, year_of_end);
        let cert = params.signed_by(&key, &self.issuer).expect("our key").pem();
        Identity::write(folder, name, &cert, &key)
    }
}

impl Identity {
    /// A self-signed certificate.
    fn of_its_own(folder: &Folder, name: &str) -> Identity {
        let (params, key) = Identity::params(name, 2099);
        let cert = params.self_signed(&key).expect("its own key").pem();
        Identity::write(folder, name, &cert, &key)
    }
    /// A self-signed certificate that may sign others (CA:TRUE), as `openssl req -x509` makes it. Without `purposes` it is
    /// for all purposes.
    fn of_an_authority(
        folder: &Folder,
        name: &str,
        year_of_end: i32,
        purposes: &[ExtendedKeyUsagePurpose],
    ) -> Identity {
        let (mut params, key) = Identity::params(name, year_of_end);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages = purposes.to_vec();
        let cert = params.self_signed(&key).expect("its own key").pem();
        Identity::write(folder, name, &cert, &key)
    }
    fn params(name: &str, year_of_end: i32) -> (CertificateParams, KeyPair) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).expect("an address");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(year_of_end, 1, 1);
        (params, KeyPair::generate().expect("randomness"))
    }
    fn write(folder: &Folder, name: &str, cert: &str, key: &KeyPair) -> Identity {
        Identity {
            cert: folder.write(&format!("{name}.crt"), cert),
            key: folder.write(&format!("{name}.key"), &key.serialize_pem()),
        }
    }
}

/// A server with a door for each of `ports`, and everything that TLS needs.
pub struct Fixture {
    pub folder: Folder,
    pub ca: Authority,
    pub ca_file: String,
    pub identity: Identity,
    pub client: Identity,
    pub server: Server,
    pub doors: Vec<SocketAddr>,
}

pub fn start(ports: &[&str], options: &[&str]) -> Fixture {
    let (folder, ca) = (Folder::new(), Authority::new("ours"));
    let ca_file = folder.write("ca.crt", &ca.pem);
    let (identity, client) = (ca.sign(&folder, "server", 2099), ca.sign(&folder, "client", 2099));
    let files = [
        ["--tls-cert-file", &identity.cert],
        ["--tls-key-file", &identity.key],
        ["--tls-ca-cert-file", &ca_file],
    ];
    let options = [&files.concat(), options].concat();
    let (server, doors) = Server::start_doors(ports, &options);
    Fixture { folder, ca, ca_file, identity, client, server, doors }
}

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Fixture {
    pub fn config(&self, ca: &Authority, identity: Option<&Identity>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).expect("PEM")).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("its own defaults").with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = vec![CertificateDer::from_pem_file(&identity.cert).expect("PEM")];
                let key = PrivateKeyDer::from_pem_file(&identity.key).expect("PEM");
                builder.with_client_auth_cert(chain, key).expect("they belong together")
            }
        })
    }
    pub fn connect(&self, address: SocketAddr, config: Arc<ClientConfig>) -> Stream {
        self.connect_as(address, address.ip(), config)
    }
    /// Connects as a client that expects the server for `name`.
    pub fn connect_as(&self, address: SocketAddr, name: IpAddr, config: Arc<ClientConfig>) -> Stream {
        let name = ServerName::from(name);
        let tls = ClientConnection::new(config, name).expect("a configuration");
        let socket = TcpStream::connect(address).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_millis(REPLY_MS_MAX))).expect("not zero");
        socket.set_nodelay(true).expect("a TCP socket");
        StreamOwned::new(tls, socket)
    }
    fn trusted(&self) -> Stream {
        self.connect(self.doors[0], self.config(&self.ca, Some(&self.client)))
    }
    /// The reason why a client that sends PING gets no answer.
    fn refused(&self, config: Arc<ClientConfig>) -> String {
        self.refused_at(self.doors[0], config)
    }
    fn refused_at(&self, address: SocketAddr, config: Arc<ClientConfig>) -> String {
        let mut stream = self.connect(address, config);
        let mut reply = [0; 7];
        let exchange = stream.write_all(&command("PING")).and_then(|()| stream.read_exact(&mut reply));
        exchange.expect_err("it is refused").to_string()
    }
    pub fn logs(&self, text: &str) {
        let logged = || self.server.folder.log_text().contains(text);
        if !crate::harness::is_true_within(Duration::from_secs(10), logged) {
            panic!("no {text:?} in the log: {}", self.server.folder.log_text());
        }
    }
}

#[track_caller]
pub fn call(stream: &mut Stream, request: &[u8], reply: &[u8]) {
    stream.write_all(request).expect("it takes a request");
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).unwrap_or_else(|e| panic!("{e} after {}", got.escape_ascii()));
    assert_eq!(got.escape_ascii().to_string(), reply.escape_ascii().to_string());
}

#[test]
fn every_door_has_the_same_data_over_tls() {
    let fixture = start(&["--tls-port", "--tls-pack4-port", "--pack4-port"], &["--workers", "2"]);
    let mut tls = fixture.trusted();
    call(&mut tls, &command("SET k v"), b"+OK\r\n");
    let config = fixture.config(&fixture.ca, Some(&fixture.client));
    let mut framed = fixture.connect(fixture.doors[1], config);
    call(
        &mut framed,
        &[frame(b"GET k"), frame(b"PING")].concat(),
        &[frame(b"$1\r\nv\r\n"), frame(b"+PONG\r\n")].concat(),
    );
    let mut plain = fixture.server.connect();
    plain.call("GET k", "$1\r\nv\r\n");
    let list = plain.bulk("CLIENT LIST");
    assert!(fixture.doors[..2].iter().all(|door| list.contains(&format!(" laddr={door} "))), "{list}");
    plain.call(&format!("CLIENT KILL LADDR {}", fixture.doors[0]), ":1\r\n");
    assert!(tls.read(&mut [0; 1]).map_or(true, |n| n == 0));
    call(&mut framed, &frame(b"PING"), &frame(b"+PONG\r\n"));
}

#[test]
fn large_values_and_pipelines_pass_in_pieces_of_any_size() {
    const BYTES: usize = 8 << 20;
    let fixture = start(&["--tls-port"], &["--workers", "1"]);
    let mut stream = fixture.trusted();
    let value = numbered(BYTES);
    let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${BYTES}\r\n");
    call(&mut stream, &[head.as_bytes(), &value, b"\r\n"].concat(), b"+OK\r\n");
    let bulk = [format!("${BYTES}\r\n").as_bytes(), &value, b"\r\n"].concat();
    call(&mut stream, &command("GET big"), &bulk);
    call(&mut stream, &command("PING").repeat(20_000), &b"+PONG\r\n".repeat(20_000));
    for byte in command("STRLEN big") {
        stream.write_all(&[byte]).expect("it takes a byte");
    }
    call(&mut stream, b"", format!(":{BYTES}\r\n").as_bytes());
    call(&mut stream, &command("QUIT"), b"+OK\r\n");
    assert_eq!(stream.read(&mut [0; 1]).expect("a proper end"), 0);
}

#[test]
fn untrusted_clients_get_an_alert_and_others_are_served() {
    let fixture = start(&["--tls-port", "--tls-pack4-port", "--tls-http-port"], &["--workers", "1"]);
    let (stranger, mut friend) = (Authority::new("theirs"), fixture.trusted());
    call(&mut friend, &command("PING"), b"+PONG\r\n");
    let expired = fixture.ca.sign(&fixture.folder, "expired", 2002);
    let foreign = stranger.sign(&fixture.folder, "foreign", 2099);
    let own = Identity::of_its_own(&fixture.folder, "own");

    let told = fixture.refused(fixture.config(&stranger, Some(&fixture.client)));
    assert!(told.contains("UnknownIssuer"), "{told}");
    fixture.logs("the client does not trust the authority that signed tls-cert-file");
    for (identity, told, logged) in [
        (None, "CertificateRequired", "the client has no certificate (tls-auth-clients)"),
        (Some(&expired), "ertificateExpired", "the client's certificate is refused: certificate expired"),
        (Some(&foreign), "UnknownCA", "the client's certificate is refused: UnknownIssuer"),
        (Some(&own), "UnknownCA", "the client's certificate is refused: UnknownIssuer"),
    ] {
        // The log takes ten of these lines in ten seconds.
        let doors = if matches!(identity, Some(i) if !i.cert.contains("own")) { 1 } else { 3 };
        for (door, name) in fixture.doors[..doors].iter().zip(["TLS ", "TLS pack4 ", "TLS http "]) {
            let said = fixture.refused_at(*door, fixture.config(&fixture.ca, identity));
            assert!(said.contains(told), "{name}{said}");
            comes_true(|| {
                let log = fixture.server.folder.log_text();
                log.lines().any(|l| l.contains(&format!(" {name}connection from ")) && l.contains(logged))
            });
        }
        call(&mut friend, &command("PING"), b"+PONG\r\n");
    }
    let mut plain = fixture.server.connect();
    for (value, is_let_in) in [("optional", true), ("no", true), ("yes", false)] {
        plain.call(&format!("CONFIG SET tls-auth-clients {value}"), "+OK\r\n");
        let mut stream = fixture.connect(fixture.doors[0], fixture.config(&fixture.ca, None));
        let mut reply = [0; 7];
        let _ = stream.write_all(&command("PING"));
        assert_eq!(stream.read_exact(&mut reply).is_ok(), is_let_in, "{value}");
    }
}

/// OpenSSL, and so redis-server, accepts such a certificate of a peer if the certificate itself is trusted.
#[test]
fn a_peer_may_show_a_trusted_certificate_that_may_sign_others() {
    let fixture = start(&["--tls-port"], &["--workers", "1"]);
    let folder = &fixture.folder;
    let [good, expired, foreign] = [("good", 2099), ("expired-ca", 2002), ("foreign-ca", 2099)]
        .map(|(name, year_of_end)| Identity::of_an_authority(folder, name, year_of_end, &[]));
    let [of_servers, of_clients] = [
        ("servers-ca", ExtendedKeyUsagePurpose::ServerAuth),
        ("clients-ca", ExtendedKeyUsagePurpose::ClientAuth),
    ]
    .map(|(name, purpose)| Identity::of_an_authority(folder, name, 2099, &[purpose]));
    let pem = |identity: &Identity| std::fs::read_to_string(&identity.cert).expect("ours");
    let trusted = folder.write("trusted.crt", &[&good, &expired, &of_servers, &of_clients].map(pem).concat());
    let mut plain = fixture.server.connect();
    plain.call(&format!("CONFIG SET tls-ca-cert-file {trusted}"), "+OK\r\n");
    for identity in [&good, &of_clients] {
        let mut stream = fixture.connect(fixture.doors[0], fixture.config(&fixture.ca, Some(identity)));
        call(&mut stream, &command("PING"), b"+PONG\r\n");
    }
    let not_itself = ". Either it is a CA certificate (CA:TRUE) that is not itself in";
    for (identity, logged) in
        [(&expired, ": certificate expired"), (&foreign, not_itself), (&of_servers, not_itself)]
    {
        fixture.refused(fixture.config(&fixture.ca, Some(identity)));
        fixture.logs(&format!("the client's certificate is refused{logged}"));
    }
    // The server's own certificate, in the same way.
    plain.call("CONFIG SET tls-auth-clients no", "+OK\r\n");
    plain.call(&format!("CONFIG SET tls-cert-file {} tls-key-file {}", good.cert, good.key), "+OK\r\n");
    let port = fixture.doors[0].port().to_string();
    let ping = |host: &str, cacert: &str| {
        let output = strand(&["cli", "-h", host, "-p", &port, "--tls", "--cacert", cacert, "ping"]);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(ping("127.0.0.1", &good.cert), "PONG\n");
    let wrong = ping("localhost", &good.cert);
    assert!(wrong.contains("localhost"), "the certificate is for 127.0.0.1: {wrong}");
    assert!(ping("127.0.0.1", &foreign.cert).contains("is not itself trusted"));
    for (identity, answer) in [(&of_servers, "PONG"), (&of_clients, "is not itself trusted")] {
        plain.call(
            &format!("CONFIG SET tls-cert-file {} tls-key-file {}", identity.cert, identity.key),
            "+OK\r\n",
        );
        let printed = ping("127.0.0.1", &identity.cert);
        assert!(printed.contains(answer), "{answer}: {printed}");
    }
}

#[test]
fn plain_text_at_a_tls_port_and_tls_at_a_plain_port_get_an_error() {
    let ports = ["--tls-port", "--pack4-port", "--http-port", "--tls-pack4-port", "--tls-http-port"];
    let fixture = start(&ports, &["--workers", "1"]);
    let mut friend = fixture.trusted();
    let hello = [&b"PING\r\n"[..], &frame(b"PING"), b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"];
    for (address, hello) in [0, 3, 4].map(|i| fixture.doors[i]).into_iter().zip(hello) {
        let mut stranger = Client::connect(address);
        stranger.send(hello);
        // The alert: type 21, the version, and 2 bytes: fatal, and the reason.
        stranger.expect(&[21, 3, 3, 0, 2, 2]);
        comes_true(|| {
            let log = fixture.server.folder.log_text();
            let at = format!(" at {address}: ");
            log.lines().any(|l| l.contains(&at) && l.contains("this port accepts only TLS"))
        });
        call(&mut friend, &command("PING"), b"+PONG\r\n");
    }
    for address in [fixture.server.address, fixture.doors[1], fixture.doors[2]] {
        let mut stream = fixture.connect(address, fixture.config(&fixture.ca, None));
        let failed = stream.write_all(b"PING").and_then(|()| stream.flush());
        let failed = failed.and_then(|()| stream.read(&mut [0; 1]).map(|_| ()));
        assert!(failed.expect_err("no TLS there").to_string().contains("InvalidContentType"));
    }
    fixture.logs(&format!("sends TLS to {}, which is not a TLS port", fixture.server.address));
    fixture.logs(&format!("sends TLS to {}, which is not a TLS port", fixture.doors[1]));
    call(&mut friend, &command("PING"), b"+PONG\r\n");
    // A client that sends only a part of its hello blocks no other client, and costs no processor time.
    let mut half = Client::connect(fixture.doors[0]);
    half.send(&[22, 3, 1, 2, 0, 1, 0]);
    call(&mut friend, &command("PING"), b"+PONG\r\n");
    fixture.server.costs_nothing();
    half.send(&[0xff; 600]);
    half.expect(&[21, 3, 3, 0, 2, 2]);
}

#[test]
fn https_is_served_and_the_wrong_protocol_gets_an_error() {
    let ports = ["--tls-http-port", "--http-port", "--tls-port"];
    let fixture = start(&ports, &["--workers", "1", "--tls-auth-clients", "no"]);
    let get = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let whole = |stream: &mut dyn Read| {
        let mut text = Vec::new();
        // A peer that closes in the middle of its hello may be reset.
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    let secure = || {
        let mut stream = fixture.connect(fixture.doors[0], fixture.config(&fixture.ca, None));
        stream.write_all(get).expect("it takes a request");
        whole(&mut stream)
    };
    assert!(secure().starts_with("HTTP/1.1 200 OK"), "{}", secure());
    // Plain HTTP at the TLS port gets an alert. TLS at the plain port gets an HTTP error.
    let socket = |address| {
        let socket = TcpStream::connect(address).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("not zero");
        socket
    };
    let mut plain = socket(fixture.doors[0]);
    plain.write_all(get).expect("taken");
    let alert = whole(&mut plain);
    assert!(alert.starts_with('\u{15}') && !alert.contains("HTTP"), "{alert:?}");
    let mut hello = socket(fixture.doors[1]);
    hello.write_all(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00").expect("taken");
    let word = whole(&mut hello);
    assert!(word.starts_with("HTTP/1.1 400 ") && word.contains("does not accept TLS"), "{word}");
    fixture.logs("sends TLS to");
    let mut plain = socket(fixture.doors[1]);
    plain.write_all(get).expect("taken");
    assert!(whole(&mut plain).starts_with("HTTP/1.1 200 OK"));
    assert!(secure().starts_with("HTTP/1.1 200 OK"), "others do not notice");
}

#[test]
fn certificates_are_reloaded_while_clients_are_served() {
    let mut fixture = start(&["--tls-port"], &["--workers", "1"]);
    let (mut early, mut plain) = (fixture.trusted(), fixture.server.connect());
    call(&mut early, &command("PING"), b"+PONG\r\n");
    // From now on, another authority signs both certificates.
    let next = Authority::new("next");
    let identity = next.sign(&fixture.folder, "next-server", 2099);
    let client = next.sign(&fixture.folder, "next-client", 2099);
    let ca_file = fixture.folder.write("next-ca.crt", &next.pem);
    // A certificate that does not match its key changes nothing.
    let failed = "-ERR CONFIG SET failed (possibly related to argument 'tls-cert-file') - Unable to update TLS \
                  configuration. Check server logs.\r\n";
    plain.call(&format!("CONFIG SET tls-cert-file {}", identity.cert), failed);
    plain.call("CONFIG SET tls-cert-file /nowhere", failed);
    fixture.logs("/nowhere");
    assert_eq!(plain.line_of("CONFIG GET tls-cert-file", 4), fixture.identity.cert);
    call(&mut fixture.trusted(), &command("PING"), b"+PONG\r\n");
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {} tls-ca-cert-file {ca_file}",
        identity.cert, identity.key
    );
    plain.call(&set, "+OK\r\n");
    call(&mut early, &command("PING"), b"+PONG\r\n");
    assert!(fixture.refused(fixture.config(&fixture.ca, Some(&fixture.client))).contains("UnknownIssuer"));
    (fixture.ca, fixture.client) = (next, client);
    call(&mut fixture.trusted(), &command("PING"), b"+PONG\r\n");
    // The files are replaced in place.
    let third = Authority::new("third");
    let client = third.sign(&fixture.folder, "next-client", 2099);
    third.sign(&fixture.folder, "next-server", 2099);
    fixture.folder.write("next-ca.crt", &third.pem);
    fixture.server.signal(rustix::process::Signal::HUP);
    fixture.logs("SIGHUP: the certificates were reloaded");
    (fixture.ca, fixture.client) = (third, client);
    call(&mut fixture.trusted(), &command("PING"), b"+PONG\r\n");
    fixture.folder.write("next-server.key", "no key");
    fixture.server.signal(rustix::process::Signal::HUP);
    fixture.logs("the TLS configuration is unchanged");
    call(&mut fixture.trusted(), &command("PING"), b"+PONG\r\n");
    call(&mut early, &command("PING"), b"+PONG\r\n");
    let _ = fixture.ca_file;
}

#[test]
fn tls_sessions_are_resumed_until_they_expire() {
    for (options, kind) in [
        (&[][..], HandshakeKind::Resumed),
        (&["--tls-session-caching", "no"], HandshakeKind::Full),
        (&["--tls-session-cache-timeout", "0"], HandshakeKind::Full),
        (
            &["--tls-protocols", "TLSv1.2", "--tls-ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"],
            HandshakeKind::Resumed,
        ),
    ] {
        let fixture = start(&["--tls-port"], options);
        let config = fixture.config(&fixture.ca, Some(&fixture.client));
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let mut stream = fixture.connect(fixture.doors[0], config.clone());
            call(&mut stream, &command("PING"), b"+PONG\r\n");
            kinds.push(stream.conn.handshake_kind());
        }
        assert_eq!(kinds, [Some(HandshakeKind::Full), Some(kind)], "{options:?}");
    }
}

const OLD_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBFzCBvwIUaTxa3HmD8zph1YdxlWlJvmMB1ocwCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDb2xkMCAXDTI2MTEzMDIzNDI0OVoYDzIxMjYxMTA2MjM0MjQ5WjAOMQww
CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASG1bgm/+N4MS7t
FCoFyAhzmWeqN6j8qP743GNfcocWhoiJeRPASC/fkyoDsmV8+Y84QdvNtssQnJZ5
nSdi1LpgMAoGCCqGSM49BAMCA0cAMEQCIEQDI2StmFCalgv0CqfWRVQ6l/24mJA8
pf0uuLNGw1W3AiBVbNEtoPnIqxgoPRjaSgvolfE0VmuFgFl5+6W23NID+Q==
-----END CERTIFICATE-----";
const OLD_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgaO7WJWxlPTxNQlFr
35aWq1+gncM9MRgfgx96FMP6Fw2hRANCAASG1bgm/+N4MS7tFCoFyAhzmWeqN6j8
qP743GNfcocWhoiJeRPASC/fkyoDsmV8+Y84QdvNtssQnJZ5nSdi1Lpg
-----END PRIVATE KEY-----";

#[test]
fn a_server_without_a_usable_certificate_does_not_start() {
    let start = |options: &[&str]| {
        let out = crate::harness::strand(&[&["serve", "--tls-port", "1", "--port", "0"], options].concat());
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let folder = Folder::new();
    let identity = Authority::new("ours").sign(&folder, "server", 2099);
    // `openssl x509 -req -signkey` made this certificate, and its key.
    let (old, key) = (folder.write("old.crt", OLD_CERTIFICATE), folder.write("old.key", OLD_KEY));
    let old = ["--tls-cert-file", &old, "--tls-key-file", &key, "--tls-auth-clients", "no"];
    let cert = ["--tls-cert-file", &identity.cert];
    let both = ["--tls-cert-file", &identity.cert, "--tls-key-file", &identity.key];
    let without_clients = [&both[..], &["--tls-auth-clients", "no"]].concat();
    for (options, text) in [
        (&[][..], "No tls-cert-file configured!"),
        (&cert, "No tls-key-file configured!"),
        (&both, "Either tls-ca-cert-file or tls-ca-cert-dir must be specified"),
        (
            &[&cert[..], &["--tls-key-file", &identity.cert, "--tls-auth-clients", "no"]].concat(),
            "the file has no private key: expected -----BEGIN PRIVATE KEY-----",
        ),
        (&old, "old.crt has X.509 version 1 or 2: expected 3"),
        (&[&without_clients[..], &["--tls-protocols", "TLSv1.1"]].concat(), "not supported"),
        (&[&without_clients[..], &["--tls-ciphers", "RC4-SHA"]].concat(), "'RC4-SHA' is not one of"),
    ] {
        let said = start(options);
        assert!(said.contains("Failed to configure TLS: ") && said.contains(text), "{said}");
    }
}

#[test]
fn limits_hold_during_the_handshake() {
    let fixture = start(&["--tls-port"], &["--maxclients", "2", "--workers", "1"]);
    let _silent = Client::connect(fixture.doors[0]);
    let mut plain = fixture.server.connect();
    comes_true(|| plain.bulk("CLIENT LIST").lines().count() == 2);
    let mut third = Client::connect(fixture.doors[0]);
    third.expect_end();
    plain.call(&format!("CLIENT KILL LADDR {}", fixture.doors[0]), ":1\r\n");
    comes_true(|| plain.bulk("CLIENT LIST").lines().count() == 1);
    call(&mut fixture.trusted(), &command("PING"), b"+PONG\r\n");
}

#[test]
fn a_close_alert_with_the_last_request_is_noticed_at_once() {
    let fixture = start(&["--tls-port"], &["--workers", "1"]);
    let mut stream = fixture.trusted();
    call(&mut stream, &command("PING"), b"+PONG\r\n");
    // The request and the close alert come in one segment, and the socket stays open.
    let mut last = Vec::new();
    stream.conn.writer().write_all(&command("ECHO last")).expect("room for it");
    stream.conn.send_close_notify();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut last).expect("a vector");
    }
    stream.sock.write_all(&last).expect("it takes bytes");
    call(&mut stream, b"", b"$4\r\nlast\r\n");
    assert_eq!(stream.read(&mut [0; 1]).expect("its end, too"), 0);
}

#[test]
fn a_client_that_vanishes_during_a_sleep_is_removed() {
    let fixture = start(&["--tls-port"], &["--workers", "1", "--enable-debug-command", "yes"]);
    let (mut stream, mut plain) = (fixture.trusted(), fixture.server.connect());
    call(&mut stream, &command("PING"), b"+PONG\r\n");
    // Send more than the server reads ahead, so that it has stopped reading when the peer disconnects.
    let sent = [command("DEBUG SLEEP 600"), command("PING").repeat(100_000)].concat();
    let _ = stream.sock.set_write_timeout(Some(Duration::from_millis(500)));
    let _ = stream.write_all(&sent);
    socket2::SockRef::from(&stream.sock).set_linger(Some(Duration::ZERO)).expect("a TCP socket");
    drop(stream);
    comes_true(|| plain.bulk("CLIENT LIST").lines().count() == 1);
}

#[test]
fn the_log_has_the_reason_of_a_closed_connection_and_the_result_of_sighup() {
    let fixture = start(&["--tls-port"], &["--workers", "1", "--loglevel", "debug"]);
    let (mut stream, mut plain) = (fixture.trusted(), fixture.server.connect());
    call(&mut stream, &command("PING"), b"+PONG\r\n");
    let at = stream.sock.local_addr().expect("it is bound");
    plain.call(&format!("CLIENT KILL ADDR {at}"), ":1\r\n");
    fixture.logs(&format!("connection from {at}"));
    fixture.logs(": killed");
    assert!(!fixture.server.folder.log_text().contains("handshake in time"));
    let without = Server::start(&["--workers", "1"]);
    without.signal(rustix::process::Signal::HUP);
    comes_true(|| without.folder.log_text().contains("SIGHUP: neither a port nor tls-replication uses TLS"));
}

#[test]
fn any_size_of_the_session_cache_is_accepted() {
    let fixture = start(&["--tls-port"], &["--workers", "1"]);
    let mut plain = fixture.server.connect();
    plain.call("CONFIG SET tls-session-cache-size 2147483647", "+OK\r\n");
    assert_eq!(plain.line_of("CONFIG GET tls-session-cache-size", 4), "2147483647");
    call(&mut fixture.trusted(), &command("PING"), b"+PONG\r\n");
    assert!(fixture.server.memory("VmRSS") < 200 << 20);
}

#[test]
fn the_importer_and_other_tools_speak_tls() {
    let fixture = start(&["--tls-port"], &["--workers", "1"]);
    let door = fixture.doors[0].to_string();
    let docs = fixture.folder.0.join("docs");
    std::fs::create_dir(&docs).expect("the folder is ours");
    std::fs::write(docs.join("large.txt"), "word ".repeat(600_000)).expect("the folder is ours");
    std::fs::write(docs.join("small.txt"), "another").expect("the folder is ours");
    let trust = ["--tls", "--cacert", &fixture.ca_file];
    let all = [&trust[..], &["--cert", &fixture.client.cert, "--key", &fixture.client.key]].concat();
    let run = |words: &[&str], tls: &[&str]| {
        let output = strand(&[words, &["--server", &door], tls].concat());
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let import = ["import", docs.to_str().expect("UTF-8"), "--into", "d"];
    let (code, text) = run(&import, &all);
    assert!(code == Some(0) && text.contains("2 added"), "{code:?} {text}");
    let mut plain = fixture.server.connect();
    plain.call("HSTRLEN d:large.txt body", ":2999999\r\n");
    assert_eq!(run(&[&import[..], &["--atomic", "--recheck"]].concat(), &all).0, Some(0));
    let (code, text) = run(&["jobs", "list"], &all);
    assert!(code == Some(0) && text.contains("2 documents"), "{code:?} {text}");
    // On a busy machine the doctor may report pauses (exit code 3).
    let (code, text) = run(&["doctor", "--json"], &all);
    assert!(matches!(code, Some(0 | 3)) && text.contains("\"findings\":["), "{code:?} {text}");
    // Refused: a server of another authority, a client without a certificate, TLS at a plain port, and options that
    // have no effect.
    let theirs = fixture.folder.write("theirs.crt", &Authority::new("theirs").pem);
    let wrong = ["--tls", "--cacert", &theirs, "--cert", &fixture.client.cert, "--key", &fixture.client.key];
    for (tls, code, said) in [
        (&wrong[..], 1, "UnknownIssuer"),
        (&trust[..], 1, "lost the server"),
        (&all[1..], 2, "--cacert has no effect without --tls"),
        (&["--tls", "--cacert", "/no/such/file"][..], 2, "/no/such/file"),
        (&[][..], 1, &door),
        (&[], 1, "(if this is a TLS port, use --tls)"),
    ] {
        let (got, text) = run(&import, tls);
        assert!(got == Some(code) && text.contains(said), "{tls:?}: {got:?} {text}");
    }
}
