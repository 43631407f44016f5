//! A server in Solr's place that takes requests and does not respond.

use crate::fake::Fake;
use crate::files::{Tree, mail};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use strand_import::{ImportError, ImportOptions, Silent};

/// Imports the tree into a server that takes connections. `reads`: the server also takes the bytes of the requests.
fn import_into_silence(tree: &Tree, reads: bool) -> (Result<strand_import::Summary, ImportError>, Duration) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut taken = Vec::new();
        for stream in listener.incoming().flatten() {
            let mut reader = stream.try_clone().expect("a socket");
            taken.push(stream);
            if reads {
                std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
            }
        }
    });
    let state = Tree::new(&[]);
    let to = format!("solr+http://{address}/solr/c?patience=3").parse().expect("a destination");
    let fake = Fake::start();
    let options = ImportOptions { to, state: Some(state.path().to_owned()), ..fake.options(tree.path()) };
    let begun = Instant::now();
    (strand_import::run(&options, &mut Silent), begun.elapsed())
}

#[test]
fn a_server_that_does_not_respond_ends_the_run_after_the_patience() {
    let small = Tree::new(&[("a.eml", &mail("a", "1"))]);
    // More bytes than the buffers of both sockets take.
    let large = Tree::new(&[]);
    for number in 0..24 {
        large.write(&format!("{number}.txt"), "words of a text\n".repeat(60_000));
    }
    for (tree, reads) in [(&small, true), (&small, false), (&large, false)] {
        let (result, took) = import_into_silence(tree, reads);
        let error = result.expect_err("there is no response").to_string();
        assert!(error.contains("the server did not answer within"), "{error}");
        assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(12), "{took:?}");
    }
}
