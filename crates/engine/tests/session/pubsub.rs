//! Subscribers and publishers. The test runs the dispatchers step by step and checks order, counts and bounds.

use crate::fixture::{End, Peer, Server, Stop, command};
use strand_engine::{Delivery, Framing};

/// A client that sends `SUBSCRIBE` (or another command of `words`) with each word.
fn listener(server: &mut Server, words: &str) -> Peer {
    let mut peer = server.connect();
    let lines = words.split(' ').count() - 1;
    assert_eq!(peer.run(server, words).matches("subscribe").count(), lines, "{words}");
    peer
}

fn heard(channel: &str, text: &str) -> String {
    format!("*3|$7|message|${}|{channel}|${}|{text}|", channel.len(), text.len())
}

#[test]
fn a_message_goes_to_channel_and_pattern_subscribers_of_every_worker() {
    let mut server = Server::new();
    let mut channels: Vec<_> = (0..7).map(|_| listener(&mut server, "SUBSCRIBE news other")).collect();
    let mut patterns: Vec<_> = (0..5).map(|_| listener(&mut server, "PSUBSCRIBE n* ?ews x*")).collect();
    let mut shards: Vec<_> = (0..2).map(|_| listener(&mut server, "SSUBSCRIBE news")).collect();
    let mut a = server.connect();
    assert_eq!(a.run(&server, "PUBLISH news hello"), ":17|");
    assert_eq!(a.run(&server, "SPUBLISH news sharded"), ":2|");
    assert_eq!(a.run(&server, "PUBLISH none x"), ":5|", "n* alone");
    for peer in &mut channels {
        assert_eq!(peer.hears(&server), heard("news", "hello"));
    }
    let match_of = |pattern: &str, channel: &str, text: &str| {
        format!(
            "*4|$8|pmessage|${}|{pattern}|${}|{channel}|${}|{text}|",
            pattern.len(),
            channel.len(),
            text.len()
        )
    };
    for peer in &mut patterns {
        let want = [("?ews", "news", "hello"), ("n*", "news", "hello"), ("n*", "none", "x")]
            .map(|(p, c, t)| match_of(p, c, t));
        assert_eq!(peer.hears(&server), want.concat());
    }
    for peer in &mut shards {
        assert_eq!(peer.hears(&server), "*3|$8|smessage|$4|news|$7|sharded|");
    }
    assert_eq!(a.run(&server, "PUBSUB NUMSUB news other"), "*4|$4|news|:7|$5|other|:7|");
    assert_eq!(a.run(&server, "PUBSUB NUMPAT"), ":3|");
    channels.pop();
    drop((patterns, shards));
    assert_eq!(a.run(&server, "PUBLISH news hello"), ":6|");
    drop(channels);
    assert_eq!(a.run(&server, "PUBLISH news hello"), ":0|");
    a.script(
        &server,
        &[("PUBSUB CHANNELS", "*0|"), ("PUBSUB NUMPAT", ":0|"), ("PUBSUB SHARDCHANNELS", "*0|")],
    );
}

#[test]
fn messages_keep_their_order_however_late_they_are_handed_out() {
    let mut server = Server::new();
    let mut a = listener(&mut server, "SUBSCRIBE one two");
    let mut publishers: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let mut want = vec![String::new(); 3];
    for i in 0..300 {
        let channel = if i % 7 < 3 { "one" } else { "two" };
        let text = format!("{}-{i}", i % 3);
        assert_eq!(publishers[i % 3].run(&server, &format!("PUBLISH {channel} {text}")), ":1|");
        want[i % 3] += &heard(channel, &text);
        if i % 50 == 0 {
            server.hand_out();
        }
    }
    let all = a.hears(&server);
    for (i, want) in want.iter().enumerate() {
        let of_one: String = all
            .split_inclusive("*3|")
            .map(|part| part.strip_suffix("*3|").unwrap_or(part))
            .filter(|m| m.contains(&format!("|{i}-")))
            .map(|m| format!("*3|{m}"))
            .collect();
        assert_eq!(&of_one, want);
    }
}

#[test]
fn exactly_the_counted_subscribers_get_the_message() {
    let mut server = Server::new();
    let mut a = listener(&mut server, "SUBSCRIBE ch");
    let mut b = listener(&mut server, "PSUBSCRIBE c*");
    let mut p = server.connect();
    // Nothing is delivered in between: a session that ends or begins a subscription checks for itself.
    assert_eq!(p.run(&server, "PUBLISH ch 1"), ":2|");
    assert_eq!(a.run(&server, "UNSUBSCRIBE ch"), heard("ch", "1") + "*3|$11|unsubscribe|$2|ch|:0|");
    assert_eq!(p.run(&server, "PUBLISH ch 2"), ":1|");
    assert_eq!(a.run(&server, "SUBSCRIBE ch"), "*3|$9|subscribe|$2|ch|:1|");
    assert_eq!(p.run(&server, "PUBLISH ch 3"), ":2|");
    assert_eq!(a.hears(&server), heard("ch", "3"));
    assert_eq!(a.hears(&server), "", "once");
    let messages = b.hears(&server);
    assert_eq!(messages.matches("pmessage").count(), 3, "{messages}");
    assert_eq!(p.run(&server, "PUBLISH ch 4"), ":2|");
    let end = b.run(&server, "PUNSUBSCRIBE");
    assert!(end.starts_with("*4|$8|pmessage|$2|c*|$2|ch|$1|4|") && end.ends_with("$2|c*|:0|"), "{end}");
    assert_eq!(a.run(&server, "RESET"), heard("ch", "4") + "+RESET|");
    assert_eq!((a.hears(&server), b.hears(&server)), (String::new(), String::new()));
}

/// Like the test above, but the message was delivered to some subscribers only, because the slice ended.
#[test]
fn a_message_that_is_half_way_through_is_neither_lost_nor_given_twice() {
    let mut server = Server::new();
    let mut peers: Vec<_> = (0..9_000).map(|_| listener(&mut server, "SUBSCRIBE ch")).collect();
    let mut p = server.connect();
    assert_eq!(p.run(&server, "PUBLISH ch x"), ":9000|");
    assert!(
        server.engine.deliver(0) == Delivery::More,
        "3,000 clients of one worker are too many for one slice"
    );
    let mut gone = Vec::new();
    for (i, peer) in peers.iter_mut().enumerate() {
        match i % 3 {
            0 => {
                let heard_all = peer.run(&server, "UNSUBSCRIBE ch");
                assert_eq!(heard_all, heard("ch", "x") + "*3|$11|unsubscribe|$2|ch|:0|", "{i}");
                gone.push(i);
            }
            1 => {
                let more = peer.run(&server, "PSUBSCRIBE c*");
                assert_eq!(more, heard("ch", "x") + "*3|$10|psubscribe|$2|c*|:2|", "{i}");
            }
            _ => {}
        }
    }
    for (i, peer) in peers.iter_mut().enumerate() {
        let want = if i % 3 == 2 { heard("ch", "x") } else { String::new() };
        assert_eq!(peer.hears(&server), want, "{i}");
    }
    assert_eq!(p.run(&server, "PUBLISH ch y"), ":9000|", "3,000 left, 3,000 listen twice");
}

#[test]
fn each_subscriber_gets_all_messages_of_a_pipeline_at_once_and_in_order() {
    const MESSAGES: usize = 30;
    let mut server = Server::new();
    // Make more deliveries than one slice has.
    let mut listeners: Vec<_> = (0..300).map(|_| listener(&mut server, "SUBSCRIBE news other")).collect();
    let mut a = server.connect();
    let line = |n: usize| command(&format!("PUBLISH news {n}"));
    let pipeline: Vec<u8> = (0..MESSAGES).flat_map(line).chain(command("PUBLISH other last")).collect();
    a.send(&server, &pipeline);
    (0..3).for_each(|worker| _ = server.engine.deliver(worker));
    let want: String = (0..MESSAGES).map(|n| heard("news", &n.to_string())).collect();
    let (mut whole, mut none) = (0, 0);
    let early: Vec<String> = listeners
        .iter_mut()
        .map(|peer| {
            peer.drive(&server);
            peer.replies()
        })
        .collect();
    for text in &early {
        whole += usize::from(*text == want);
        none += usize::from(text.is_empty());
    }
    assert!(whole > 0 && none > 0 && whole + none == listeners.len(), "{whole} have all, {none} have none");
    // One client subscribes and another unsubscribes while the message is half delivered. Neither loses a message or
    // gets a message too many.
    let mut late = listener(&mut server, "SUBSCRIBE news other");
    let at = early.iter().position(String::is_empty).expect("some have none");
    let gone = listeners[at].run(&server, "UNSUBSCRIBE news");
    assert_eq!(gone, want.clone() + &heard("other", "last") + "*3|$11|unsubscribe|$4|news|:1|");
    for (n, (peer, early)) in listeners.iter_mut().zip(&early).enumerate() {
        let rest = match early.is_empty() {
            _ if n == at => String::new(),
            true => want.clone() + &heard("other", "last"),
            false => heard("other", "last"),
        };
        assert_eq!(peer.hears(&server), rest, "{n}");
    }
    assert_eq!(late.hears(&server), "");
}

#[test]
fn a_message_of_a_session_to_itself_is_never_inside_a_reply() {
    let mut server = Server::new();
    let mut a = server.connect();
    a.run(&server, "HELLO 3");
    assert_eq!(a.run(&server, "SUBSCRIBE ch"), ">3|$9|subscribe|$2|ch|:1|");
    let message = ">3|$7|message|$2|ch|$1|x|";
    assert_eq!(a.run(&server, "PUBLISH ch x"), format!("{message}:1|"));
    a.script(
        &server,
        &[("MULTI", "+OK|"), ("PING", "+QUEUED|"), ("PUBLISH ch x", "+QUEUED|"), ("PING", "+QUEUED|")],
    );
    assert_eq!(a.run(&server, "EXEC"), "*3|+PONG|:1|+PONG|");
    assert_eq!(a.hears(&server), message);
    // In RESP3 all commands are allowed, and pushes arrive although replies are off.
    a.script(&server, &[("SET k v", "+OK|"), ("PING", "+PONG|"), ("CLIENT REPLY OFF", "")]);
    assert_eq!(a.run(&server, "PUBLISH ch x"), message);
    assert_eq!(a.run(&server, "SUBSCRIBE more"), ">3|$9|subscribe|$4|more|:2|");
    assert_eq!(a.run(&server, "PING"), "");
}

#[test]
fn messages_wait_while_a_reply_is_on_its_way_from_a_helper_thread() {
    let mut server = Server::new();
    let (mut a, mut p) = (server.connect(), server.connect());
    a.run(&server, "HELLO 3");
    a.run(&server, "SUBSCRIBE ch");
    a.hold_jobs = true;
    assert_eq!(a.run(&server, "KEYS *"), "");
    assert_eq!(p.run(&server, "PUBLISH ch x"), ":1|");
    assert_eq!(a.hears(&server), "");
    let job = a.job.take().expect("KEYS runs on a helper thread");
    a.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(a.hears(&server), "*0|>3|$7|message|$2|ch|$1|x|");
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_at_the_limit_of_its_class() {
    let mut server = Server::with("client-output-buffer-limit pubsub 100000 0 0");
    let (mut a, mut p) = (listener(&mut server, "SUBSCRIBE ch"), server.connect());
    a.hold_output = true;
    let text = "x".repeat(1000);
    let mut received = 0;
    for _ in 0..200 {
        let publish = format!("PUBLISH ch {text}");
        received += usize::from(p.run(&server, &publish) == ":1|");
        server.hand_out();
        if a.drive(&server) == Stop::Ended {
            break;
        }
    }
    assert_eq!(a.ended, Some(End::Abort));
    assert!((90..=116).contains(&received), "{received} messages of 1,000 bytes");
    // The same happens when the client's session cannot take the messages.
    let mut a = listener(&mut server, "SUBSCRIBE ch");
    for _ in 0..200 {
        p.run(&server, &format!("PUBLISH ch {text}"));
    }
    server.hand_out();
    assert_eq!(a.drive(&server), Stop::Ended);
    assert_eq!(a.ended, Some(End::Abort));
    assert!(p.run(&server, "INFO stats").contains("client_output_buffer_limit_disconnections:2|"));
    // A client without subscriptions belongs to class normal.
    let mut normal = server.connect();
    normal.hold_output = true;
    p.run(&server, &format!("SET k {}", "x".repeat(200_000)));
    assert_eq!(normal.send(&server, &command("GET k")), "");
    assert_eq!(normal.ended, None);
}

#[test]
fn publishers_wait_for_a_dispatcher_with_a_full_queue() {
    let mut server = Server::new();
    let (mut a, mut p) = (listener(&mut server, "SUBSCRIBE ch"), server.connect());
    let mut sent = 0;
    while p.run(&server, "PUBLISH ch x") == ":1|" {
        sent += 1;
        assert!(sent < 10_000, "nothing bounds the queue");
    }
    // The publisher waits until the dispatcher catches up. Other clients do not wait.
    let mut other = server.connect();
    other.script(&server, &[("PING", "+PONG|"), ("SET k v", "+OK|")]);
    let woken = p.wakes.count();
    assert_eq!(a.hears(&server).matches("message").count(), sent + 1 - 1);
    assert!(p.wakes.count() > woken);
    assert_eq!(p.send(&server, b""), ":1|");
    assert_eq!(a.hears(&server), heard("ch", "x"));
}

#[test]
fn a_hundred_thousand_subscriptions_come_and_go_in_slices() {
    let mut server = Server::with("client-output-buffer-limit pubsub 0 0 0");
    let mut a = server.connect();
    let names: Vec<String> = (0..100_000).map(|i| format!("channel:{i}")).collect();
    let all = a.run(&server, &format!("SUBSCRIBE {}", names.join(" ")));
    assert_eq!(all.matches("subscribe").count(), names.len());
    assert!(all.ends_with("$13|channel:99999|:100000|"), "{}", &all[all.len() - 100..]);
    let mut p = server.connect();
    assert_eq!(p.run(&server, "PUBLISH channel:777 x"), ":1|");
    assert!(p.run(&server, "INFO stats").contains("|pubsub_channels:100000|"));
    assert!(p.run(&server, "CLIENT LIST TYPE pubsub").contains(" flags=P db=0 sub=100000 psub=0 ssub=0 "));
    assert_eq!(a.hears(&server), heard("channel:777", "x"));
    let end = a.run(&server, "UNSUBSCRIBE");
    assert_eq!(end.matches("unsubscribe").count(), names.len());
    assert!(end.ends_with(":0|"));
    a.run(&server, &format!("SUBSCRIBE {}", names.join(" ")));
    assert_eq!(a.run(&server, "RESET"), "+RESET|");
    assert_eq!(p.run(&server, "PUBSUB CHANNELS"), "*0|");
    a.run(&server, &format!("SUBSCRIBE {}", names.join(" ")));
    drop(a);
    assert_eq!(p.run(&server, "PUBSUB CHANNELS"), "*0|");
}

#[test]
fn limits_have_names() {
    let mut server = Server::new();
    let mut a = server.connect();
    let long = "c".repeat(16 * 1024);
    let ack = |word: &str, n: usize, count: usize| {
        format!("*3|${}|{word}|${n}|", word.len()) + &format!("{}|:{count}|", "c".repeat(n))
    };
    assert_eq!(a.run(&server, &format!("SUBSCRIBE {long}")), ack("subscribe", long.len(), 1));
    assert_eq!(
        a.run(&server, &format!("SUBSCRIBE {long}c x")),
        "-ERR a channel may have at most 16384 bytes|*3|$9|subscribe|$1|x|:2|"
    );
    assert_eq!(
        a.run(&server, &format!("PSUBSCRIBE {}", "c".repeat(4097))),
        "-ERR a pattern may have at most 4096 bytes|"
    );
    assert_eq!(
        a.run(&server, &format!("PSUBSCRIBE *{}*", "c".repeat(100))),
        "-ERR the pattern would take too long to match|"
    );
    let names: Vec<String> = (0..10_000).map(|i| format!("pattern:{i}")).collect();
    let all = a.run(&server, &format!("PSUBSCRIBE {}", names.join(" ")));
    assert!(all.ends_with("$12|pattern:9999|:10002|"), "{}", &all[all.len() - 100..]);
    assert_eq!(
        a.run(&server, "PSUBSCRIBE one more"),
        "-ERR a client may subscribe to at most 10000 patterns|".repeat(2)
    );
    let mut p = server.connect();
    assert_eq!(p.run(&server, &format!("PUBLISH {long}c x")), "-ERR a channel may have at most 16384 bytes|");
    // With this many patterns PUBLISH runs on a helper thread, with the same effect as on a worker.
    p.hold_jobs = true;
    assert_eq!(p.run(&server, "PUBLISH pattern:77 x"), "");
    let job = p.job.take().expect("it does");
    p.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(p.send(&server, b""), ":1|");
    assert_eq!(a.hears(&server), "*4|$8|pmessage|$10|pattern:77|$10|pattern:77|$1|x|");
}

#[test]
fn a_user_hears_and_says_what_its_channels_allow() {
    let mut server = Server::new();
    let mut admin = server.connect();
    const NO: &str = "-NOPERM this user has no permissions to access one of the channels used as arguments|";
    admin.script(&server, &[("ACL SETUSER u on nopass +@all ~* resetchannels &ch:* &lit", "+OK|")]);
    let mut a = server.connect();
    a.script(
        &server,
        &[
            ("AUTH u x", "+OK|"),
            ("PUBLISH ch:1 x", ":0|"),
            ("PUBLISH other x", NO),
            ("SPUBLISH other x", NO),
            ("SUBSCRIBE ch:1 other", NO),
            ("PSUBSCRIBE ch:a*", NO),
            ("PSUBSCRIBE ch:*", "*3|$10|psubscribe|$4|ch:*|:1|"),
            ("SSUBSCRIBE nope", NO),
            ("UNSUBSCRIBE other", "*3|$11|unsubscribe|$5|other|:1|"),
            ("SUBSCRIBE lit", "*3|$9|subscribe|$3|lit|:2|"),
        ],
    );
    assert!(admin.run(&server, "ACL LOG 1").contains("$7|channel|"), "the log says why");
    // The client stays connected when its user gets more rights, or loses rights of another kind.
    admin.script(&server, &[("ACL SETUSER u &more", "+OK|"), ("ACL SETUSER u -@all", "+OK|")]);
    admin.script(&server, &[("PUBLISH lit x", ":1|")]);
    assert_eq!(a.hears(&server), heard("lit", "x"));
    // One channel is no longer allowed: the client is closed and gets none of the later messages.
    let woken = a.wakes.count();
    admin.script(&server, &[("ACL SETUSER u resetchannels &ch:*", "+OK|"), ("PUBLISH lit secret", ":1|")]);
    assert!(a.wakes.count() > woken, "at once, though it sends nothing");
    assert_eq!(a.hears(&server), "");
    assert!(a.ended.is_some());
    drop(a);
    // All names of a long SUBSCRIBE are checked before the first subscription begins.
    let mut b = server.connect();
    admin.script(&server, &[("ACL SETUSER u +@all", "+OK|")]);
    b.script(&server, &[("AUTH u x", "+OK|")]);
    let names: Vec<String> = (0..5_000).map(|i| format!("ch:{i}")).collect();
    assert_eq!(b.run(&server, &format!("SUBSCRIBE {} other", names.join(" "))), NO);
    assert_eq!(b.run(&server, "PUBSUB CHANNELS"), "*0|");
    let all = b.run(&server, &format!("SUBSCRIBE {}", names.join(" ")));
    assert_eq!(all.matches("|$9|subscribe|").count(), 5_000);
}

#[test]
fn listeners_are_not_idle_and_are_found_by_their_class() {
    let mut server = Server::with("timeout 5");
    let (mut a, mut p) = (listener(&mut server, "SUBSCRIBE ch"), server.connect());
    server.advance_ms(60_000);
    assert_eq!(a.drive(&server), Stop::Read);
    assert_eq!(p.drive(&server), Stop::Ended);
    let mut p = server.connect();
    assert_eq!(p.run(&server, "CLIENT KILL TYPE pubsub"), ":1|");
    assert_eq!(a.drive(&server), Stop::Ended);
}

#[test]
fn frames_hold_one_message_each() {
    let mut server = Server::new();
    let mut a = server.try_connect_by(Framing::Pack4, true).expect("there is room");
    let request = b"*2\r\n$9\r\nSUBSCRIBE\r\n$2\r\nch\r\n";
    let framed = [&(request.len() as u32).to_be_bytes()[..], request].concat();
    let reply = a.send(&server, &framed);
    assert!(reply.ends_with("*3|$9|subscribe|$2|ch|:1|"), "{reply:?}");
    let mut p = server.connect();
    p.run(&server, "PUBLISH ch one");
    p.run(&server, "PUBLISH ch two");
    server.hand_out();
    a.drive(&server);
    let bytes = a.received_bytes();
    let frames: Vec<&[u8]> = bytes.split(|b| *b == 0).filter(|part| !part.is_empty()).collect();
    assert_eq!(frames.len(), 2, "{bytes:?}");
}

#[test]
fn a_long_message_is_shared_and_not_copied() {
    let mut server = Server::new();
    let mut peers: Vec<_> = (0..6).map(|_| listener(&mut server, "SUBSCRIBE ch")).collect();
    peers.iter_mut().for_each(|peer| peer.hold_output = true);
    let text = "x".repeat(1 << 20);
    let mut p = server.connect();
    assert_eq!(p.run(&server, &format!("PUBLISH ch {text}")), ":6|");
    server.hand_out();
    for peer in &mut peers {
        peer.drive(&server);
        peer.take_output(usize::MAX);
        assert_eq!(peer.replies(), heard("ch", &text));
    }
}

#[test]
fn every_channel_of_a_queued_subscribe_is_checked() {
    let mut server = Server::new();
    let mut admin = server.connect();
    admin.run(&server, "ACL SETUSER lim on >p resetchannels &ok* +@all");
    let names: String = (0..1100).map(|i| format!(" ok{i}")).collect();
    for (word, denied) in [("SUBSCRIBE", "secret"), ("PSUBSCRIBE", "secret*")] {
        let long = format!("{word} {denied}{names}");
        let dry = admin.run(&server, &format!("ACL DRYRUN lim {long}"));
        assert!(dry.contains("no permissions"), "{dry}");
        let mut peer = server.connect();
        peer.script(&server, &[("AUTH lim p", "+OK|"), ("MULTI", "+OK|")]);
        assert!(peer.run(&server, &long).starts_with("-NOPERM"), "{word}");
        assert!(peer.run(&server, "EXEC").starts_with("-EXECABORT"), "{word}");
        assert_eq!(admin.run(&server, "PUBLISH secret x"), ":0|");
        assert!(peer.run(&server, &long).starts_with("-NOPERM"), "{word} outside MULTI");
    }
    assert_eq!(admin.run(&server, &format!("ACL DRYRUN lim SUBSCRIBE{names}")), "+OK|");
}

#[test]
fn one_selector_must_allow_a_long_subscribe_and_all_its_channels() {
    let mut server = Server::new();
    let (mut admin, mut peer) = (server.connect(), server.connect());
    let names: String = (0..3000).map(|i| format!(" ok{i}")).collect();
    admin.run(&server, "ACL SETUSER u on >p resetchannels &ok* +subscribe +ping (+publish &secret*)");
    peer.run(&server, "AUTH u p");
    for (long, denied) in [(format!("SUBSCRIBE{names} secret"), true), (format!("SUBSCRIBE{names}"), false)] {
        let reply = peer.run(&server, &long);
        assert_eq!(reply.starts_with("-NOPERM"), denied, "{reply:.60}");
    }
    assert_eq!(admin.run(&server, "PUBLISH secret x"), ":0|");
    assert_eq!(admin.run(&server, "PUBLISH ok2999 x"), ":1|");
    // The second selector allows what the first one does not.
    admin.run(&server, "ACL SETUSER v on >p resetchannels &ok1* +subscribe (+subscribe &ok* &secret)");
    let mut peer = server.connect();
    peer.run(&server, "AUTH v p");
    assert!(peer.run(&server, &format!("SUBSCRIBE{names} secret")).starts_with("*3|$9|subscribe|$3|ok0|:1|"));
    assert_eq!(admin.run(&server, "PUBLISH secret x"), ":1|");
}

#[test]
fn a_long_subscribe_has_the_rights_of_its_end() {
    let mut server = Server::new();
    let (mut admin, mut peer) = (server.connect(), server.connect());
    let names: String = (0..5000).map(|i| format!(" a{i}")).collect();
    admin.run(&server, "ACL SETUSER u on >p resetchannels &a* +@all");
    peer.run(&server, "AUTH u p");
    peer.feed(&command(&format!("SUBSCRIBE{names}")), usize::MAX);
    peer.session.run(server.now);
    admin.run(&server, "ACL SETUSER u resetchannels &b*");
    peer.drive(&server);
    let reply = peer.replies();
    assert!(reply.starts_with("-NOPERM"), "{reply:.80}");
    assert_eq!(admin.run(&server, "PUBLISH a1 x"), ":0|");
}
