//! The request path allocates nothing for small commands. A large body needs one final allocation.

use strand_chain::{Blob, Chain, TRUSTED_AFTER_BYTES};
use strand_wire::args::Argv;
use strand_wire::client::encode_command;
use strand_wire::reply::{Protocol, Reply};
use strand_wire::resp::{Decoded, Decoder, LARGE_BODY_BYTES_MIN, RequestLimits};

/// Feeds `bytes` and decodes all commands, with a reply for each. Returns the number of commands.
fn serve(decoder: &mut Decoder, input: &mut Chain, argv: &mut Argv, out: &mut Chain, bytes: &[u8]) -> usize {
    let mut commands = 0;
    input.push_slice(bytes);
    while decoder.decode(input, argv).expect("it is RESP") == Decoded::Command {
        let mut reply = Reply::new(out, Protocol::Resp2);
        reply.bulk(argv.args().at(argv.len() - 1));
        reply.int(-7);
        reply.double(0.1);
        argv.clear();
        commands += 1;
    }
    out.clear();
    commands
}

#[test]
fn small_commands_allocate_nothing() {
    let mut pipeline = Vec::new();
    for _ in 0..30 {
        encode_command(&mut pipeline, &[&b"SET"[..], b"key:000000000001", &[b'v'; 256]]);
    }
    pipeline.extend(b"GET 'a key'\r\n");
    let (mut decoder, mut input, mut argv, mut out) = parts();
    serve(&mut decoder, &mut input, &mut argv, &mut out, &pipeline);
    let info = allocation_counter::measure(|| {
        // Feed the pipeline whole, and then split at a difficult place.
        assert_eq!(serve(&mut decoder, &mut input, &mut argv, &mut out, &pipeline), 31);
        let commands: usize =
            pipeline.chunks(97).map(|part| serve(&mut decoder, &mut input, &mut argv, &mut out, part)).sum();
        assert_eq!(commands, 31);
    });
    assert_eq!(info.count_total, 0);
}

#[test]
fn large_argument_is_allocated_once_and_shared() {
    let mut request = Vec::new();
    encode_command(&mut request, &[&b"SET"[..], b"k", &[b'v'; LARGE_BODY_BYTES_MIN]]);
    let (mut decoder, mut input, mut argv, _) = parts();
    let mut blob: Option<Blob> = None;
    let mut round = |argv: &mut Argv| {
        input.push_slice(&request[..100]);
        assert_eq!(decoder.decode(&mut input, argv), Ok(Decoded::NeedsBytes));
        let mut rest = &request[100..request.len() - 2];
        while let Some(spare) = decoder.body_spare() {
            let n = spare.len().min(rest.len());
            spare[..n].copy_from_slice(&rest[..n]);
            decoder.body_filled(n);
            rest = &rest[n..];
        }
        input.push_slice(b"\r\n");
        assert_eq!(decoder.decode(&mut input, argv), Ok(Decoded::Command));
        blob = Some(argv.args().blob(2));
        argv.clear();
    };
    round(&mut argv);
    let info = allocation_counter::measure(|| round(&mut argv));
    // The value needs one allocation, and the argv's overflow another.
    assert!(info.count_total <= 2, "{info:?}");
    assert!(blob.is_some_and(|b| b.is_unique() && b.capacity() == b.len()));
}

#[test]
fn declared_length_allocates_nothing_before_bytes_arrive() {
    let (mut decoder, mut input, mut argv, _) = parts();
    let info = allocation_counter::measure(|| {
        input.push_slice(b"*1000000\r\n$536870912\r\n");
        assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::NeedsBytes));
        assert!(decoder.body_spare().is_some());
        decoder.body_filled(100);
    });
    assert!(info.bytes_max < TRUSTED_AFTER_BYTES as u64, "{info:?}");
}

fn parts() -> (Decoder, Chain, Argv, Chain) {
    (Decoder::new(RequestLimits::FULL), Chain::new(), Argv::new(), Chain::new())
}
