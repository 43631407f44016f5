//! The folder of the append-only file, when `dir` changes.

use crate::aof::folder;
use crate::harness::{Server, comes_true};

#[test]
fn the_append_only_file_stays_in_its_folder_when_dir_changes() {
    let (first, second) = (folder(), folder());
    let config = first.path().join("strand.conf");
    let text = format!(
        "dir {}\nappendonly yes\nsave \"\"\nport 0\nbind 127.0.0.1\nhttp-port 0\nenable-protected-configs yes\n",
        first.path().display()
    );
    std::fs::write(&config, text).expect("ours");
    let server = Server::start_as(&[config.to_str().expect("a plain path")], "");
    let mut client = server.connect();
    client.call("SET a 1", "+OK\r\n");
    let empty = client.line_of("CONFIG SET dir \"\"", 0);
    assert!(empty.ends_with("'dir') - No such file or directory"), "{empty}");
    let new = second.path().to_str().expect("a plain path").to_owned();
    client.call(&format!("CONFIG SET dir {new}"), "+OK\r\n");
    comes_true(|| server.folder.log_text().contains("The append-only file stays in "));
    let refused = client.line_of("CONFIG REWRITE", 0);
    assert!(
        refused.contains(&*first.path().to_string_lossy()) && refused.contains("appendonly no"),
        "{refused}"
    );
    client.call("CONFIG SET appendonly no", "+OK\r\n");
    client.call("CONFIG REWRITE", "+OK\r\n");
    client.call("CONFIG SET appendonly yes", "+OK\r\n");
    comes_true(|| second.path().join("appendonlydir/appendonly.aof.manifest").exists());
    comes_true(|| client.line_of("CONFIG REWRITE", 0) == "+OK");
    comes_true(|| client.bulk("INFO persistence").contains("aof_rewrite_in_progress:0"));
    drop((client, server));
    let again = Server::start_as(&[config.to_str().expect("a plain path")], "");
    again.connect().call("GET a", "$1\r\n1\r\n");
}
