//! redis-cli's modes other than running commands: statistics, latency, mass insertion, walks over all keys. The modes of
//! a replica are in [`crate::replica`].

use crate::client::{Client, write_stdout};
use crate::connection::{Connection, ConnectionError};
use crate::format::OutputFormat;
use crate::interrupts::Interrupts;
use crate::options::{CliMode, Options};
use std::io::{Read, Write, stdin};
use std::process::{ExitCode, exit};
use std::thread;
use std::time::{Duration, Instant};
use strand_wire::client::Value;
use strand_wire::quote::quoted;

/// Number of bytes of the standard input that are sent at once.
const PIPE_BYTES: usize = 16 * 1024;
/// The reader of `--pipe` waits this long for replies before it checks whether everything was sent.
const PIPE_WAIT: Duration = Duration::from_millis(100);
/// Pause between two round trips of `--latency`.
const LATENCY_PAUSE: Duration = Duration::from_millis(10);
/// `--stat` repeats its header after this number of rows.
const STAT_ROWS: u64 = 20;

/// Runs the mode that the options choose, on a connection of its own.
pub fn run(options: Options) -> ExitCode {
    let mode = options.mode.clone();
    let mut client = Client::new(options.clone());
    let Ok(connection) = client.connect_as_wanted() else { return ExitCode::FAILURE };
    let outcome = match mode {
        CliMode::Pipe(timeout) => return pipe(connection, timeout),
        CliMode::Stat => stat(connection, &options),
        CliMode::Latency(history) => latency(connection, &options, history),
        CliMode::Scan => scan(connection, &options, &Interrupts::caught()),
        CliMode::Snapshot(file) => crate::replica::save_snapshot(connection, &file, false),
        CliMode::Functions(file) => crate::replica::save_snapshot(connection, &file, true),
        CliMode::Replica => crate::replica::show_stream(connection, &options, &Interrupts::caught()),
        _ => crate::largest::run(connection, &options, &Interrupts::caught()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The bytes of a string reply.
///
/// # Errors
/// When the reply is not a string.
pub fn string(reply: Value) -> Result<Vec<u8>, ConnectionError> {
    match reply {
        Value::Bulk(text) | Value::Simple(text) | Value::Verbatim(_, text) => Ok(text),
        Value::Error(text) => Err(ConnectionError::ErrorReply(String::from_utf8_lossy(&text).into_owned())),
        _ => Err(ConnectionError::NotAString),
    }
}

/// A page of SCAN: the next cursor and the keys.
///
/// # Errors
/// When the reply is not a page.
pub fn scan_page(
    connection: &mut Connection,
    cursor: &[u8],
    options: &Options,
) -> Result<(Vec<u8>, Vec<Vec<u8>>), ConnectionError> {
    let mut args: Vec<&[u8]> = vec![b"SCAN", cursor];
    if let Some(pattern) = &options.pattern {
        args.extend([&b"MATCH"[..], pattern]);
    }
    match connection.ask(&args)? {
        Value::Array(mut parts) if parts.len() == 2 => {
            let (keys, cursor) = (parts.pop(), parts.pop());
            let Some(Value::Array(keys)) = keys else {
                return Err(ConnectionError::NotAPage);
            };
            let cursor = string(cursor.unwrap_or(Value::Null))?;
            Ok((cursor, keys.into_iter().map(string).collect::<Result<_, _>>()?))
        }
        Value::Error(text) => Err(ConnectionError::ScanRefused(String::from_utf8_lossy(&text).into_owned())),
        _ => Err(ConnectionError::NotAPage),
    }
}

fn scan(
    connection: &mut Connection,
    options: &Options,
    interrupts: &Interrupts,
) -> Result<(), ConnectionError> {
    let mut cursor = b"0".to_vec();
    loop {
        let (next, keys) = scan_page(connection, &cursor, options)?;
        let mut out = Vec::new();
        for key in keys {
            match options.output_format {
                OutputFormat::Standard => quoted(&mut out, &key),
                _ => out.extend_from_slice(&key),
            }
            out.push(b'\n');
        }
        write_stdout(&out);
        if next == b"0" || interrupts.pressed() {
            return Ok(());
        }
        cursor = next;
        if let Some(interval) = options.interval {
            interrupts.sleep(interval);
        }
    }
}

/// Sends the standard input and counts the replies meanwhile.
fn pipe(connection: &mut Connection, timeout_s: u64) -> ExitCode {
    let mut end_marker = [0; 20];
    end_marker.iter_mut().for_each(|b| *b = fastrand::u8(..));
    let mut last = b"\r\n*2\r\n$4\r\nECHO\r\n$20\r\n".to_vec();
    last.extend_from_slice(&end_marker);
    last.extend_from_slice(b"\r\n");
    let mut counter = ReplyCounter { errors: 0, replies: 0, end_marker, is_done: false };
    let outcome = match connection.writer() {
        Some(mut writer) => {
            let sender = thread::spawn(move || {
                send_all(|bytes| writer.write_all(bytes).map_err(ConnectionError::Io), &last)
            });
            let mut sender = Some(sender);
            count_all(connection, &mut counter, timeout_s, || {
                let ended = sender.take_if(|sender| sender.is_finished()).map(thread::JoinHandle::join);
                match ended {
                    // A failed write says less than what the server sends before it closes the connection.
                    Some(Ok(Err(error @ ConnectionError::Stdin(_)))) => Err(error),
                    _ => Ok(sender.is_none()),
                }
            })
        }
        // A TLS stream cannot be split, so replies are read after each piece.
        None => {
            let sent = send_all(
                |bytes| {
                    connection.write(bytes)?;
                    connection.wait_at_most(Some(Duration::from_millis(1))).map_err(ConnectionError::Io)?;
                    connection.fill()?;
                    counter.count_arrived(connection)
                },
                &last,
            );
            sent.and_then(|()| count_all(connection, &mut counter, timeout_s, || Ok(true)))
        }
    };
    if let Err(error) = outcome {
        match error {
            ConnectionError::Stdin(_) => complain!("{error}"),
            _ => complain!("Error reading replies from server: {error}"),
        }
        exit(1);
    }
    write_stdout(format!("errors: {}, replies: {}\n", counter.errors, counter.replies).as_bytes());
    if counter.errors > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Sends the standard input, and then `last`.
fn send_all(
    mut write: impl FnMut(&[u8]) -> Result<(), ConnectionError>,
    last: &[u8],
) -> Result<(), ConnectionError> {
    let (mut input, mut buffer) = (stdin().lock(), vec![0; PIPE_BYTES]);
    loop {
        match input.read(&mut buffer) {
            Ok(0) => {
                write_stdout(b"All data transferred. Waiting for the last reply...\n");
                return write(last);
            }
            Ok(n) => write(&buffer[..n])?,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(ConnectionError::Stdin(e)),
        }
    }
}

/// Counts the replies to the commands of `--pipe`, up to the reply to a final ECHO of `end_marker`.
struct ReplyCounter {
    errors: u64,
    replies: u64,
    end_marker: [u8; 20],
    is_done: bool,
}

impl ReplyCounter {
    /// Counts the replies that have arrived on the connection.
    fn count_arrived(&mut self, connection: &mut Connection) -> Result<(), ConnectionError> {
        while let Some(reply) = connection.buffered()? {
            match reply {
                Value::Error(text) => {
                    complain!("{}", String::from_utf8_lossy(&text));
                    self.errors += 1;
                }
                Value::Bulk(text) if text == self.end_marker => {
                    write_stdout(b"Last reply received from server.\n");
                    self.is_done = true;
                    return Ok(());
                }
                _ => {}
            }
            self.replies += 1;
        }
        Ok(())
    }
}

/// Counts replies until the last one has arrived, or until none arrives for `timeout_s` seconds after everything was
/// sent (0: wait forever).
fn count_all(
    connection: &mut Connection,
    counter: &mut ReplyCounter,
    timeout_s: u64,
    mut all_sent: impl FnMut() -> Result<bool, ConnectionError>,
) -> Result<(), ConnectionError> {
    connection.wait_at_most(Some(PIPE_WAIT)).map_err(ConnectionError::Io)?;
    // While commands are still being sent, no reply may be due.
    let mut waits_since = Instant::now();
    counter.count_arrived(connection)?;
    while !counter.is_done {
        if connection.fill()? || !all_sent()? {
            waits_since = Instant::now();
        }
        counter.count_arrived(connection)?;
        if timeout_s > 0 && waits_since.elapsed() > Duration::from_secs(timeout_s) {
            complain!("No replies for {timeout_s} seconds: exiting.");
            counter.errors += 1;
            return Ok(());
        }
    }
    Ok(())
}

fn latency(connection: &mut Connection, options: &Options, history: bool) -> Result<(), ConnectionError> {
    let (is_live, default_s) =
        (options.output_format == OutputFormat::Standard, if history { 15 } else { 1 });
    let interval = options.interval.unwrap_or(Duration::from_secs(default_s));
    let (mut min, mut max, mut sum, mut count) = (u128::MAX, 0, 0, 0u64);
    let mut interval_start = Instant::now();
    loop {
        let start = Instant::now();
        connection.ask(&["PING"])?;
        let ms = start.elapsed().as_millis();
        (min, max, sum, count) = (min.min(ms), max.max(ms), sum + ms, count + 1);
        let average = sum as f64 / count as f64;
        let line = match options.output_format {
            OutputFormat::Standard => format!("min: {min}, max: {max}, avg: {average:.2} ({count} samples)"),
            OutputFormat::Csv => format!("{min},{max},{average:.2},{count}\n"),
            OutputFormat::Raw => format!("{min} {max} {average:.2} {count}\n"),
            OutputFormat::Json | OutputFormat::QuotedJson => {
                format!("{{\"min\": {min}, \"max\": {max}, \"avg\": {average:.2}, \"count\": {count}}}\n")
            }
        };
        let is_over = interval_start.elapsed() > interval;
        if is_live {
            write_stdout(format!("\u{1b}[0G\u{1b}[2K{line}").as_bytes());
        } else if history || is_over {
            write_stdout(line.as_bytes());
            if !history {
                return Ok(());
            }
        }
        if history && is_over {
            write_stdout(
                format!(" -- {:.2} seconds range\n", interval_start.elapsed().as_secs_f64()).as_bytes(),
            );
            (min, max, sum, count, interval_start) = (u128::MAX, 0, 0, 0, Instant::now());
        }
        thread::sleep(LATENCY_PAUSE);
    }
}

/// The number in the line `name:n` of INFO.
fn number(info: &str, name: &str) -> i64 {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

fn stat(connection: &mut Connection, options: &Options) -> Result<(), ConnectionError> {
    let (mut rows, mut requests) = (0, 0);
    loop {
        let info = string(connection.ask(&["INFO"])?)?;
        let info = String::from_utf8_lossy(&info);
        if rows % STAT_ROWS == 0 {
            write_stdout(
                b"------- data ------ --------------------- load -------------------- - child -\n\
                keys       mem      clients blocked requests            connections          \n",
            );
        }
        rows += 1;
        let keys: i64 = info
            .lines()
            .filter_map(|line| {
                line.strip_prefix("db")?.split_once(":keys=")?.1.split(',').next()?.parse::<i64>().ok()
            })
            .sum();
        let now = number(&info, "total_commands_processed");
        let children = number(&info, "rdb_bgsave_in_progress")
            | number(&info, "aof_rewrite_in_progress") << 1
            | number(&info, "loading") << 2;
        let child = match children {
            1 => "SAVE",
            2 => "AOF",
            3 => "SAVE+AOF",
            n if n & 4 != 0 => "LOAD",
            _ => "",
        };
        let row = format!(
            "{keys:<11}{:<8}{:<8}{:<8}{:<19}{:<12}{child}\n",
            human_bytes(number(&info, "used_memory")),
            format!(" {}", number(&info, "connected_clients")),
            number(&info, "blocked_clients"),
            format!("{now} (+{})", if requests == 0 { 0 } else { now - requests }),
            format!(" {}", number(&info, "total_connections_received")),
        );
        write_stdout(row.as_bytes());
        requests = now;
        thread::sleep(options.interval.unwrap_or(Duration::from_secs(1)));
    }
}

fn human_bytes(bytes: i64) -> String {
    let n = bytes as f64;
    match bytes {
        ..1_024 => format!("{bytes}B"),
        1_024..1_048_576 => format!("{:.2}K", n / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2}M", n / 1_048_576.0),
        _ => format!("{:.2}G", n / 1_073_741_824.0),
    }
}
