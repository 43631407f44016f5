//! DEBUG RELOAD and DEBUG LOADAOF on a replica: the stream of the primary goes on.

use crate::failover::{await_equal, ids};
use crate::following::{follow, write};
use crate::harness::comes_true;
use crate::replicas::await_online;
use crate::saving::{call, folder, link, start};
use strand_testkit::process::Server as Peer;

#[test]
fn a_replica_that_reloads_its_data_goes_on_with_the_stream() {
    let folders = [folder(), folder()];
    let (server, replica) =
        (start(folders[0].path(), &[]), start(folders[1].path(), &["--appendonly", "yes"]));
    let (mut first, mut second) = (link(&server), link(&replica));
    follow(&mut second, server.address.port());
    let before = ids(&mut second)[0].clone();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&mut link(&server), 41));
        for _ in 0..3 {
            assert_eq!(call(&mut second, &["DEBUG", "RELOAD"]), "OK");
        }
        assert_eq!(call(&mut second, &["DEBUG", "LOADAOF"]), "OK");
    });
    await_equal(&mut [&mut first, &mut second]);
    assert_eq!(ids(&mut second)[0], before);
}

#[test]
fn a_replica_that_reloads_its_data_keeps_the_keys_that_are_due() {
    let folders = [folder(), folder()];
    let debug = ["--enable-debug-command", "yes"];
    let (server, replica) = (start(folders[0].path(), &debug), start(folders[1].path(), &debug));
    let redis = Peer::redis(&debug, None).expect("redis-server is installed");
    let mut first = link(&server);
    let mut replicas = [link(&replica), redis.connect().expect("it listens")];
    replicas.iter_mut().for_each(|link| follow(link, server.address.port()));
    // The primary decides when the keys go, and may still make them permanent.
    call(&mut first, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    call(&mut first, &["SET", "due", "v", "PX", "20"]);
    await_online(&mut first, 2);
    assert_eq!(call(&mut first, &["WAIT", "2", "10000"]), "2");
    comes_true(|| call(&mut replicas[0], &["EXISTS", "due"]) == "0");
    for words in [&["DEBUG", "RELOAD"][..], &["DEBUG", "RELOAD", "NOSAVE"]] {
        let counts = replicas.each_mut().map(|replica| {
            call(replica, &["SAVE"]);
            assert_eq!(call(replica, words), "OK");
            call(replica, &["DBSIZE"])
        });
        assert_eq!(counts, ["1", "1"], "{words:?}");
    }
}
