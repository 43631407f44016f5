//! What looking at a server costs its clients: a scrape of `/metrics` ten times a second, and `strand bundle`.
//!
//! Both are Strand's own, so redis-server has no such row. A scrape counts with the keyspace full, because an exporter that
//! walks the data would show here.

use super::{KEYS, Lab, Result};
use crate::fill::{self, Content};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strand_testkit::process::Kind;

const SCRAPE: &str = "12 scrape of /metrics at 10 Hz";
const BUNDLE: &str = "9 strand bundle";

pub(super) const ROWS: &[&str] = &[SCRAPE, BUNDLE];

/// Scrapes of one event, and the time between two of them.
const SCRAPES: u32 = 50;
const SCRAPE_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for a scrape's reply.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    if lab.server.kind != Kind::Strand {
        return Ok(());
    }
    fill::keys(&lab.server, lab.options.size(KEYS), Content::Bytes(64))?;
    let (http_port, strand) = (lab.http_port, lab.options.strand.clone());
    lab.stall(SCRAPE, 1, |_, _| scrape_often(http_port));
    lab.stall(BUNDLE, 3, |_, server| {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(&strand);
        command.arg("bundle").args(["--server", &server.address.to_string()]);
        command.arg("--output").arg(folder.path().join("bundle.tar.zst"));
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("strand bundle: {status}").into()) }
    });
    Ok(())
}

/// As an agent scrapes: on one connection, at fixed times.
fn scrape_often(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
    let start = Instant::now();
    for n in 0..SCRAPES {
        std::thread::sleep((SCRAPE_EVERY * n).saturating_sub(start.elapsed()));
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let (mut reply, mut piece) = (Vec::new(), [0; 16 << 10]);
        while !is_whole(&reply)? {
            match stream.read(&mut piece)? {
                0 => return Err("the server closed the scrape's connection".into()),
                n => reply.extend_from_slice(&piece[..n]),
            }
        }
    }
    Ok(())
}

/// True when the reply is complete.
fn is_whole(reply: &[u8]) -> Result<bool> {
    let Some(end) = reply.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(false) };
    let head = std::str::from_utf8(&reply[..end])?.to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return Err(format!("the scrape got {:?}", head.lines().next()).into());
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.ok_or("the scrape's reply has no length")?.trim().parse()?;
    Ok(reply.len() >= end + 4 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_with_its_last_byte() {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        for len in 0..reply.len() {
            assert!(!is_whole(&reply[..len]).expect("so far it is good"), "{len}");
        }
        assert!(is_whole(reply).expect("it is good"));
        assert!(
            is_whole(b"HTTP/1.1 500 No\r\n\r\n").is_err() && is_whole(b"HTTP/1.1 200 OK\r\n\r\n").is_err()
        );
    }
}
