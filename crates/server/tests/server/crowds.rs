//! Many clients, and clients that request or announce a lot: what each may cost the server in memory and processor
//! time.

use crate::harness::{Client, Server, comes_true, command};
use strand_testkit::process::raise_open_files;

/// Growth of the process that is not due to what is measured, because an unoptimised build touches its own pages
/// late.
const SLACK_BYTES: u64 = 8 << 20;

/// Resets the peak of the resident memory.
fn reset_peak(server: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("the kernel lets us");
}

/// The number of clients to connect: `wanted`, or as many as the limits of open files allow.
fn crowd(wanted: u64) -> u64 {
    const OTHER_FILES: u64 = 200;
    let crowd = raise_open_files().expect("the hard limit allows it").saturating_sub(OTHER_FILES).min(wanted);
    assert!(crowd >= 500, "too few open files are allowed for a crowd");
    crowd
}

fn ping(client: &mut Client) {
    client.call("PING", "+PONG\r\n");
}

#[test]
fn a_large_value_is_sent_to_many_clients_without_a_copy() {
    const LEN: usize = 64 << 20;
    let server = Server::start(&["--workers", "1"]);
    let mut writer = server.connect();
    writer.send(format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${LEN}\r\n").as_bytes());
    let chunk = vec![b'z'; 1 << 20];
    (0..LEN / chunk.len()).for_each(|_| writer.send(&chunk));
    writer.send(b"\r\n");
    writer.expect(b"+OK\r\n");
    reset_peak(&server);
    let before = server.memory("VmRSS");
    let mut readers: Vec<_> = (0..4).map(|_| server.connect()).collect();
    readers.iter_mut().for_each(|r| r.send(&command("GET large")));
    // All four replies are in progress, and another client is served beside them.
    ping(&mut writer);
    for reader in &mut readers {
        reader.expect(format!("${LEN}\r\n").as_bytes());
        (0..LEN / chunk.len()).for_each(|_| reader.expect(&chunk));
        reader.expect(b"\r\n");
    }
    let grown = server.memory("VmHWM").saturating_sub(before);
    assert!(grown < SLACK_BYTES, "the peak grew by {grown} bytes for four replies of {LEN}");
}

#[test]
fn a_value_overwritten_while_it_is_sent_is_sent_unchanged() {
    const LEN: usize = 8 << 20;
    let server = Server::start(&["--workers", "1"]);
    let (mut reader, mut writer) = (server.connect(), server.connect());
    writer.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${LEN}\r\n").as_bytes());
    let chunk = vec![b'a'; LEN];
    writer.send(&chunk);
    writer.send(b"\r\n");
    writer.expect(b"+OK\r\n");
    reader.send(&command("GET k"));
    reader.expect(format!("${LEN}\r\n").as_bytes());
    writer.call("SETRANGE k 0 bbbb", &format!(":{LEN}\r\n"));
    writer.call("APPEND k cc", &format!(":{}\r\n", LEN + 2));
    writer.call("DEL k", ":1\r\n");
    reader.expect(&chunk);
    reader.expect(b"\r\n");
    reader.call("EXISTS k", ":0\r\n");
}

#[test]
fn promises_of_large_values_cost_no_memory_and_no_time() {
    const PROMISES: usize = 100;
    let server = Server::start(&["--workers", "1", "--hz", "1"]);
    let mut other = server.connect();
    ping(&mut other);
    let before = server.memory("VmRSS");
    let mut clients: Vec<_> = (0..PROMISES).map(|_| server.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        let head = ["*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n", "*1048576\r\n$536870912\r\n"][i % 2];
        client.send(head.as_bytes());
        client.send(&b"some bytes"[..i % 10]);
    }
    ping(&mut other);
    server.costs_nothing();
    let grown = server.memory("VmRSS").saturating_sub(before);
    assert!(grown < SLACK_BYTES + PROMISES as u64 * (64 << 10), "{grown} bytes for {PROMISES} promises");
}

#[test]
fn a_thousand_idle_clients_take_little_memory_and_no_time() {
    let idle = crowd(1000);
    let server = Server::start(&["--workers", "1", "--hz", "1"]);
    let mut other = server.connect();
    ping(&mut other);
    let before = server.memory("VmRSS");
    let mut clients: Vec<_> = (0..idle).map(|_| server.connect()).collect();
    // Send requests and get replies that are larger than the buffers of an idle session. Their memory must not stay
    // with each session.
    let set = command(&format!("SET k {}", "v".repeat(50_000)));
    for client in &mut clients {
        client.send(&set);
        client.expect(b"+OK\r\n");
    }
    let grown = server.memory("VmRSS").saturating_sub(before);
    assert!(grown < SLACK_BYTES + idle * (12 << 10), "{grown} bytes for {idle} idle clients");
    server.costs_nothing();
}

#[test]
fn the_limit_of_open_files_bounds_maxclients() {
    let server = Server::start_limited(200, &["--workers", "1", "--maxclients", "500"]);
    let mut first = server.connect();
    // As in redis-server, the value is the system's limit minus descriptors that are not clients.
    first.send(&command("CONFIG GET maxclients"));
    first.expect(b"*2\r\n$10\r\nmaxclients\r\n$3\r\n128\r\n");
    first.call("CONFIG SET maxclients 100", "+OK\r\n");
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able \
                   to handle the specified number of clients, try with 128\r\n";
    first.call("CONFIG SET maxclients 129", refused);
    first.call("CONFIG SET maxclients 128", "+OK\r\n");
    let mut crowd: Vec<_> = (0..127).map(|_| server.connect()).collect();
    crowd.iter_mut().for_each(ping);
    // A client above the limit is refused, and the others continue.
    for _ in 0..30 {
        server.connect().expect(b"-ERR max number of clients reached\r\n");
    }
    crowd.iter_mut().for_each(ping);
}

#[test]
fn a_burst_of_arrivals_is_served_and_counted() {
    let arrivals = crowd(1500);
    let server = Server::start(&["--workers", "2"]);
    let mut first = server.connect();
    let mut clients: Vec<_> = (0..arrivals).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|c| c.send(&command("INCR n")));
    ping(&mut first);
    clients.iter_mut().for_each(|c| assert!(c.line().starts_with(':')));
    assert_eq!(first.bulk("GET n"), arrivals.to_string());
    let clients_now = |c: &mut Client| c.bulk("INFO clients").contains("connected_clients:1\r\n");
    drop(clients);
    comes_true(|| clients_now(&mut first));
}

#[test]
fn clients_over_their_buffer_limits_are_closed() {
    let mut options = vec!["--workers", "1", "--client-query-buffer-limit", "1mb"];
    options.extend(["--client-output-buffer-limit", "normal", "400kb", "0", "0"]);
    let server = Server::start(&options);
    let mut other = server.connect();
    let value = vec![b'v'; 512 << 10];
    other.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).as_bytes());
    other.send(&value);
    other.send(b"\r\n");
    other.expect(b"+OK\r\n");
    // This client never reads: 50 MB of replies do not fit into the buffers of the sockets.
    let mut deaf = server.connect();
    deaf.send(&command("GET k").repeat(100));
    // This client never finishes its request: four values in it exceed what may be held.
    let mut endless = server.connect();
    endless.send(b"*100\r\n$4\r\nMSET\r\n");
    let argument = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    for _ in 0..4 {
        // The server may close during the write.
        let _ = std::io::Write::write_all(&mut endless.stream, &argument);
    }
    // Check these counters first: connected_clients is 1 before the worker has taken over the two connections, too.
    for line in
        ["client_query_buffer_limit_disconnections:1\r\n", "client_output_buffer_limit_disconnections:1\r\n"]
    {
        comes_true(|| other.bulk("INFO stats").contains(line));
    }
    comes_true(|| other.bulk("INFO clients").contains("connected_clients:1\r\n"));
}
