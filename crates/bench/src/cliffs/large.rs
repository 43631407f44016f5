//! One value of 256 MB: sent in and out, its memory, and a client that requests it and never reads.

use super::event::EventClient;
use super::{LARGE_MB, Lab, Result};
use std::time::Duration;
use strand_testkit::process::Server;

const SET: &str = "9 SET of a large value";
const GET: &str = "9 GET of a large value";
const SET_MEMORY: &str = "3 SET of a large value: peak memory gained, MB";
const GET_MEMORY: &str = "3 GET of a large value: peak memory gained, MB";
const DEAF: &str = "11 a client asks 4 times for a large value and never reads";
const DEAF_MEMORY: &str = "11 the same: memory gained, MB";

pub(super) const ROWS: &[&str] = &[SET, SET_MEMORY, GET, GET_MEMORY, DEAF, DEAF_MEMORY];

/// Time for which the client that never reads is watched.
const DEAF_MS: u64 = 1500;

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let bytes = (lab.options.size(LARGE_MB) as usize) << 20;
    if lab.wants(SET) || lab.wants(SET_MEMORY) {
        let quiet = lab.quiet();
        let before_kb = reset_peak(&lab.server)?;
        lab.stall_after(quiet, SET, 1, move |client, _| set(client, bytes));
        lab.cost(SET_MEMORY, |lab| megabytes(peak_since(&lab.server, before_kb)?));
    } else {
        set(&mut EventClient::connect(&lab.server)?, bytes)?;
    }
    if lab.wants(GET) || lab.wants(GET_MEMORY) {
        let quiet = lab.quiet();
        let before_kb = reset_peak(&lab.server)?;
        lab.stall_after(quiet, GET, 1, |client, _| client.call(&["GET", "large"]).map(drop));
        lab.cost(GET_MEMORY, |lab| megabytes(peak_since(&lab.server, before_kb)?));
    }
    if lab.wants(DEAF) || lab.wants(DEAF_MEMORY) {
        let quiet = lab.quiet();
        let before_kb = reset_peak(&lab.server)?;
        lab.stall_after(quiet, DEAF, 1, |client, _| {
            client.send(&b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n".repeat(4))?;
            std::thread::sleep(Duration::from_millis(DEAF_MS));
            Ok(())
        });
        lab.cost(DEAF_MEMORY, |lab| megabytes(peak_since(&lab.server, before_kb)?));
    }
    Ok(())
}

fn set(client: &mut EventClient, bytes: usize) -> Result<()> {
    client.send(format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${bytes}\r\n").as_bytes())?;
    let piece = [b'x'; 16 << 10];
    (0..bytes / piece.len()).try_for_each(|_| client.send(&piece))?;
    client.pipeline(b"\r\n").map(drop)
}

/// The resident memory now. The peak is counted from this value.
fn reset_peak(server: &Server) -> Result<u64> {
    server.reset_peak()?;
    Ok(server.status_kb("VmRSS")?)
}

fn peak_since(server: &Server, before_kb: u64) -> Result<u64> {
    Ok(server.status_kb("VmHWM")?.saturating_sub(before_kb))
}

fn megabytes(kb: u64) -> Result<(String, Vec<(&'static str, f64)>)> {
    let megabytes = kb as f64 / 1024.0;
    Ok((format!("{megabytes:.1}"), vec![("mb", megabytes)]))
}
