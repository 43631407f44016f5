//! Replication over TLS (`tls-replication`), to and from redis-server, and the address that a connection comes from.

use crate::following::{check_equal, follow, write};
use crate::harness::comes_true;
use crate::replicas::{await_online, field};
use crate::saving::{Link, call, folder, link, start};
use crate::tls::{Authority, Fixture, start as start_tls};
use strand_testkit::process::{Server as Peer, free_port};

/// What redis-server needs for TLS on `port`. It trusts the fixture's authority.
fn redis_with_tls(fixture: &Fixture, port: &str) -> Peer {
    let identity = &fixture.client;
    let options = [
        ["--tls-port", port],
        ["--tls-cert-file", &identity.cert],
        ["--tls-key-file", &identity.key],
        ["--tls-ca-cert-file", &fixture.ca_file],
        ["--tls-replication", "yes"],
        ["--repl-diskless-sync-delay", "0"],
    ];
    Peer::redis(&options.concat(), None).expect("redis-server is installed, and has TLS")
}

#[test]
fn a_primary_is_followed_over_tls_in_both_directions() {
    let replicates = ["--tls-replication", "yes", "--save", "", "--enable-debug-command", "yes"];
    let fixture = start_tls(&["--tls-port"], &replicates);
    let tls_port = free_port().expect("loopback has ports").to_string();
    let redis = redis_with_tls(&fixture, &tls_port);
    let (mut ours, mut theirs) = (link(&fixture.server), redis.connect().expect("it listens"));
    call(&mut theirs, &["SET", "big", &"x".repeat(3 << 20)]);
    write(&mut theirs, 1);
    follow(&mut ours, tls_port.parse().expect("a port"));
    write(&mut theirs, 2);
    check_equal(&mut theirs, &mut ours);
    // The primary knows the replica by its TLS port.
    let list = field(&mut theirs, "slave0");
    assert!(list.contains(&format!("port={},state=online", fixture.doors[0].port())), "{list}");
    // The other direction.
    assert_eq!(call(&mut ours, &["REPLICAOF", "NO", "ONE"]), "OK");
    assert_eq!(call(&mut theirs, &["REPLICAOF", "127.0.0.1", &fixture.doors[0].port().to_string()]), "OK");
    await_online(&mut ours, 1);
    write(&mut ours, 3);
    check_equal(&mut ours, &mut theirs);
    // FAILOVER connects to the replica over TLS, too.
    assert_eq!(call(&mut ours, &["FAILOVER"]), "OK");
    comes_true(|| field(&mut ours, "role") == "slave" && field(&mut ours, "master_link_status") == "up");
    write(&mut theirs, 4);
    check_equal(&mut theirs, &mut ours);
}

#[test]
fn the_primary_s_certificate_must_be_trusted_and_its_name_does_not_matter() {
    let fixture = start_tls(&["--tls-port"], &["--save", ""]);
    let port = fixture.doors[0].port().to_string();
    let mut primary = link(&fixture.server);
    call(&mut primary, &["SET", "k", "v"]);
    let of_its_own = folder();
    let replica = start(of_its_own.path(), &[]);
    let mut client = link(&replica);
    // Without certificates the option is refused, and the server says why.
    let refused = call(&mut client, &["CONFIG", "SET", "tls-replication", "yes"]);
    assert_eq!(
        refused,
        "ERR CONFIG SET failed (possibly related to argument 'tls-replication') - Unable to update TLS \
         configuration. Check server logs."
    );
    assert!(replica.folder.log_text().contains("No tls-cert-file configured!"));
    let stranger = Authority::new("theirs");
    let theirs = fixture.folder.write("theirs.crt", &stranger.pem);
    let set = |client: &mut Link, ca_file: &str, more: &[&str]| {
        let (cert, key) = (&*fixture.identity.cert, &*fixture.identity.key);
        let files =
            ["CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", ca_file];
        assert_eq!(call(client, &[&files[..], &["tls-replication", "yes"], more].concat()), "OK");
    };
    let logs = |text: &str| comes_true(|| replica.folder.log_text().contains(text));
    // The name in the primary's certificate is 127.0.0.1.
    set(&mut client, &theirs, &[]);
    assert_eq!(call(&mut client, &["REPLICAOF", "localhost", &port]), "OK");
    logs("invalid peer certificate: UnknownIssuer");
    set(&mut client, &fixture.ca_file, &[]);
    comes_true(|| field(&mut client, "master_link_status") == "up");
    assert_eq!(call(&mut client, &["GET", "k"]), "v");
    // A certificate for this purpose, which the primary does not trust.
    let foreign = stranger.sign(&fixture.folder, "foreign", 2099);
    let own = ["tls-client-cert-file", &*foreign.cert, "tls-client-key-file", &*foreign.key];
    set(&mut client, &fixture.ca_file, &own);
    assert_eq!(call(&mut primary, &["CLIENT", "KILL", "TYPE", "replica"]), "1");
    logs("UnknownCA");
    // The primary's plain port speaks no TLS.
    let plain = fixture.server.address.port().to_string();
    assert_eq!(call(&mut client, &["REPLICAOF", "127.0.0.1", &plain]), "OK");
    logs("Connection with the primary lost: the server does not speak TLS at this port");
    assert_eq!(call(&mut client, &["CONFIG", "SET", "tls-replication", "no"]), "OK");
    comes_true(|| field(&mut client, "master_link_status") == "up");
}

#[test]
fn a_connection_to_a_primary_comes_from_the_configured_address() {
    let of_its_own = [folder(), folder()];
    let [primary, replica] = of_its_own.each_ref().map(|folder| start(folder.path(), &[]));
    let (mut primary_client, mut client) = (link(&primary), link(&replica));
    let mut follows_from = |source: &str, seen: &str| {
        assert_eq!(call(&mut client, &["CONFIG", "SET", "bind-source-addr", source]), "OK");
        follow(&mut client, primary.address.port());
        let list = call(&mut primary_client, &["CLIENT", "LIST", "TYPE", "replica"]);
        assert!(list.contains(&format!(" addr={seen}:")), "{source}: {list}");
        assert_eq!(call(&mut client, &["REPLICAOF", "NO", "ONE"]), "OK");
        await_online(&mut primary_client, 0);
    };
    follows_from("127.0.0.2", "127.0.0.2");
    // As in redis-server, an address that this machine does not have is left out.
    follows_from("192.0.2.1", "127.0.0.1");
    follows_from("", "127.0.0.1");
}
