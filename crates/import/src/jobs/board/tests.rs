//! Tests of the board: which job starts, which job waits, and which job makes room.

use super::*;
use crate::jobs::ledger::SERVICE_BYTES;

const MB: u64 = 1 << 20;

fn job(name: &str, more: &str) -> Definition {
    let json = format!(r#"{{"name":"{name}","source":"/s/{name}"{more}}}"#);
    Definition::parse(serde_json::from_str(&json).unwrap()).unwrap()
}

fn board(budget_mb: u64, running: usize, jobs: &[(&str, &str)]) -> Board {
    let mut board = Board::new(budget_mb * MB, running, Vec::new(), 1);
    jobs.iter().for_each(|(name, more)| board.put(job(name, more), 0).unwrap());
    board
}

fn name_started(action: &Action) -> Option<&str> {
    match action {
        Action::Start(name, _) => Some(name),
        _ => None,
    }
}

fn started(actions: &[Action]) -> Vec<&str> {
    actions.iter().filter_map(name_started).collect()
}

#[test]
fn jobs_start_by_priority_within_memory_and_never_twice() {
    let mut board = board(16 + 24 * 2 + 3, 9, &[("a", ""), ("b", ",\"priority\":5"), ("c", "")]);
    ["a", "b", "c"].iter().for_each(|name| board.run(name, Work::Import).unwrap());
    assert_eq!(started(&board.tick(1)), ["b", "a"]);
    assert_eq!(board.show("c", 0).unwrap()["waits"], "would need 24.0 MiB, waiting for 21.0 MiB");
    // Requested again while it runs: the job runs once more when it is done, not twice at once.
    board.run("a", Work::Retry).unwrap();
    assert_eq!(started(&board.tick(2)), Vec::<&str>::new());
    board.ended("a", Some(0), 3);
    assert_eq!(started(&board.tick(4)), ["c"]);
    board.ended("c", Some(0), 5);
    let again = board.tick(6);
    assert!(
        matches!(&again[..], [Action::Start(name, words)] if name == "a" && words.contains(&"--retry-failed".into()))
    );
    assert_eq!(board.list(0)["held_bytes"], SERVICE_BYTES + 2 * JOB_BYTES);
    // A whole run takes the place of a retry that is queued.
    board.run("a", Work::Retry).unwrap();
    board.run("a", Work::Import).unwrap();
    board.ended("a", Some(0), 7);
    let whole = board.tick(8);
    assert!(
        matches!(&whole[..], [Action::Start(name, words)] if name == "a" && !words.contains(&"--retry-failed".into()))
    );
}

#[test]
fn memory_is_lent_in_order_and_a_deadlock_of_waiting_jobs_is_broken() {
    let mut board = board(16 + 24 * 2 + 50, 9, &[("a", ""), ("b", ""), ("c", "")]);
    ["a", "b"].iter().for_each(|name| board.run(name, Work::Import).unwrap());
    board.tick(1);
    board.report("a", RunReport::Need(30 * MB));
    assert_eq!(board.tick(2), [Action::Grant("a".into())]);
    board.report("b", RunReport::Need(34 * MB));
    board.run("c", Work::Import).unwrap();
    assert!(board.tick(3).is_empty(), "nobody overtakes who waits");
    assert_eq!(board.show("b", 0).unwrap()["waits"], "would need 34.0 MiB, waiting for 14.0 MiB");
    // Now both wait.
    board.report("a", RunReport::Need(35 * MB));
    assert_eq!(board.tick(4), [Action::Kill("a".into())]);
    assert!(board.tick(5).is_empty(), "once");
    board.ended("a", None, 6);
    assert_eq!(board.tick(7)[0], Action::Grant("b".into()));
    assert_eq!(board.show("a", 0).unwrap()["last"]["outcome"], "made room for others");
    // A request for more than the whole budget is cut to the budget, so a job that runs alone always gets it.
    let mut board = self::board(70, 9, &[("a", "")]);
    board.run("a", Work::Import).unwrap();
    board.tick(1);
    board.report("a", RunReport::Containers(10 * MB));
    board.report("a", RunReport::Need(1 << 40));
    assert_eq!(board.tick(2), [Action::Grant("a".into())]);
    board.report("a", RunReport::Free(1 << 40));
    assert_eq!(board.list(0)["held_bytes"], SERVICE_BYTES + JOB_BYTES + 10 * MB);
}

#[test]
fn jobs_are_triggered_paused_and_ended() {
    let mut board = board(512, 9, &[("a", r#","every":"10s""#), ("d", "")]);
    assert_eq!(board.next_wake_ms(), Some(0));
    assert_eq!(started(&board.tick(0)), ["a"]);
    assert_eq!(board.pause("a").unwrap(), [Action::Stop("a".into())]);
    assert!(board.pause("a").unwrap().is_empty());
    assert_eq!(board.show("a", 0).unwrap()["state"], "paused");
    assert_eq!(board.resume("a").unwrap(), [Action::Continue("a".into())]);
    board.ended("a", Some(0), 4_000);
    assert_eq!((board.tick(9_999), board.next_wake_ms()), (vec![], Some(10_000)));
    assert_eq!(started(&board.tick(10_000)), ["a"]);
    // Each time the job breaks off, it begins again after a longer pause.
    board.ended("a", Some(1), 11_000);
    assert_eq!((started(&board.tick(11_999)), board.next_wake_ms()), (vec![], Some(12_000)));
    let waits = |now_ms| board.show("a", now_ms).unwrap()["waits"].clone();
    assert_eq!(waits(11_001), "it broke off: the next attempt comes in 1 s");
    assert_eq!(waits(12_000), "for a free place");
    assert_eq!(started(&board.tick(12_000)), ["a"]);
    board.ended("a", None, 12_000);
    assert_eq!(board.next_wake_ms(), Some(14_000));
    assert!(board.cancel("a").unwrap().is_empty());
    // Too many deletions: the board reports that, and does not try again before the job is due.
    board.run("d", Work::Import).unwrap();
    board.tick(12_100);
    board.report("d", RunReport::Error("90 of 100 documents would be removed".into(), Value::Null));
    board.ended("d", Some(4), 12_200);
    assert_eq!(started(&board.tick(19_000)), Vec::<&str>::new());
    let shown = board.show("d", 0).unwrap();
    assert_eq!(
        (&shown["last"]["outcome"], shown["last"]["error"].as_str().unwrap()),
        (&"stopped".into(), "90 of 100 documents would be removed")
    );
    board.run("d", Work::Import).unwrap();
    board.tick(19_001);
    assert_eq!(board.cancel("d").unwrap(), [Action::Kill("d".into())]);
    assert_eq!(board.remove("d").unwrap(), [Action::Kill("d".into())]);
    board.ended("d", None, 19_002);
    assert!(board.show("d", 0).is_none() && board.run("d", Work::Import).is_err());
}

#[test]
fn a_job_that_is_put_while_its_deleted_run_ends_stays() {
    let mut board = board(512, 9, &[("a", "")]);
    board.run("a", Work::Import).unwrap();
    assert_eq!(started(&board.tick(1)), ["a"]);
    assert_eq!(board.remove("a").unwrap(), [Action::Kill("a".into())]);
    board.put(job("a", r#","priority":7"#), 2).unwrap();
    board.ended("a", None, 3);
    assert_eq!(board.definition("a").map(|definition| definition.priority), Some(7));
    assert_eq!(started(&board.tick(4)), Vec::<&str>::new());
    board.run("a", Work::Import).unwrap();
    assert_eq!(started(&board.tick(5)), ["a"]);
}

#[test]
fn setting_the_clock_neither_delays_nor_repeats_jobs() {
    const DAY: u64 = 86_400_000;
    // Half past midnight, whatever the zone of this machine is: cron asks for each minute.
    let begin = 20_000 * DAY;
    let jobs =
        [("a", r#","every":"10s""#), ("b", r#","watch":"2s""#), ("c", r#","cron":"* * * * *""#), ("d", "")];
    let mut board = Board::new(512 * MB, 9, Vec::new(), 1);
    jobs.iter().for_each(|(name, more)| board.put(job(name, more), begin).unwrap());
    assert_eq!(started(&board.tick(begin)), ["a"]);
    board.ended("a", Some(0), begin + 1);
    board.run("d", Work::Import).unwrap();
    assert_eq!(started(&board.tick(begin + 2)), ["d"]);
    board.ended("d", Some(1), begin + 1000);
    board.note_folder_change("b", begin + 1000);
    assert_eq!(board.tick(begin + 1000), []);
    // The clock goes back by a day: what was due in 1 s, 2 s, 9 s and within a minute is still due then.
    let now = begin + 1000 - DAY;
    assert_eq!(board.tick(now), []);
    assert_eq!(started(&board.tick(now + 1000)), ["d"]);
    assert_eq!(started(&board.tick(now + 2000)), ["b"]);
    assert_eq!((board.tick(now + 8_999), started(&board.tick(now + 9_000))), (vec![], vec!["a"]));
    assert_eq!(started(&board.tick(now + 59_000)), ["c"]);
    ["a", "b", "c", "d"].iter().for_each(|name| board.ended(name, Some(0), now + 59_500));
    // The clock goes forward by a year: each job that is due runs once.
    let now = now + 365 * DAY;
    let mut ran = started(&board.tick(now)).iter().map(|name| name.to_string()).collect::<Vec<_>>();
    ran.sort();
    assert_eq!(ran, ["a", "c"]);
    ["a", "c"].iter().for_each(|name| board.ended(name, Some(0), now + 1));
    assert_eq!(board.tick(now + 2), []);
    assert_eq!(started(&board.tick(now + 10_000)), ["a"]);
}

#[test]
fn a_forecast_is_shown_beside_the_progress() {
    let mut board = board(256, 9, &[("a", "")]);
    board.run("a", Work::Import).unwrap();
    board.tick(1);
    let map = |text: &str| serde_json::from_str(text).unwrap();
    board.report("a", RunReport::Forecast(map(r#"{"documents":3}"#)));
    assert_eq!(board.show("a", 0).unwrap()["forecast"]["documents"], 3);
    board.report("a", RunReport::Summary(map(r#"{"opened":2}"#)));
    board.ended("a", Some(0), 2);
    let shown = board.show("a", 0).unwrap();
    assert_eq!(
        (&shown["last"]["forecast"]["documents"], &shown["last"]["summary"]["opened"]),
        (&3.into(), &2.into())
    );
    assert_eq!(shown.get("forecast"), None);
}

#[test]
fn sources_are_limited_and_datasets_are_not_shared() {
    let limits = vec![SourceLimit { source: "/s/slow".into(), running: 2, rate: Some(10) }];
    let mut board = Board::new(1 << 30, 99, limits, 1);
    for name in ["slow1", "slow2", "slow3", "other"] {
        board.put(job(name, ""), 0).unwrap();
        board.run(name, Work::Import).unwrap();
    }
    let actions = board.tick(1);
    assert_eq!(started(&actions), ["slow1", "slow2", "other"]);
    assert!(
        matches!(&actions[0], Action::Start(_, words) if words.join(" ").contains("--rate 5 ")),
        "{actions:?}"
    );
    let error = board.put(job("x", r#","into":"other""#), 0).unwrap_err();
    assert!(error.to_string().contains("other"), "{error}");
}

#[test]
fn all_limits_of_a_source_count() {
    let limit =
        |source: &str, running, rate| SourceLimit { source: source.into(), running, rate: Some(rate) };
    let limits = vec![limit("/s", 9, 900), limit("/s/slow", 1, 10), limit("/s/sl", 2, 1000)];
    let mut board = Board::new(1 << 30, 99, limits, 1);
    for name in ["slow1", "slow2", "other"] {
        board.put(job(name, ""), 0).unwrap();
        board.run(name, Work::Import).unwrap();
    }
    let actions = board.tick(1);
    assert_eq!(started(&actions), ["slow1", "other"]);
    for (action, rate) in actions.iter().zip(["--rate 10 ", "--rate 100 "]) {
        assert!(matches!(action, Action::Start(_, words) if words.join(" ").contains(rate)), "{action:?}");
    }
}

#[test]
fn saved_jobs_continue_after_a_restart() {
    let mut board = board(512, 9, &[("a", r#","every":"10s""#), ("b", ""), ("c", "")]);
    board.tick(5);
    board.pause("b").unwrap();
    board.run("c", Work::Import).unwrap();
    board.tick(6);
    board.ended("c", Some(0), 7);
    let saved = board.save();
    let mut next = Board::new(512 * MB, 9, Vec::new(), 1);
    next.put(job("a", r#","every":"20s""#), 8).unwrap();
    assert_eq!(next.restore(&saved, |definition| definition.name != "c", 8), Ok(Vec::new()));
    assert_eq!(next.names(), ["a", "b"]);
    assert_eq!(started(&next.tick(9)), ["a"], "it ran when the service ended");
    assert_eq!(next.show("b", 0).unwrap()["state"], "paused");
    assert_eq!(next.definition("a").unwrap().given["every"], "20s");
}

/// A job must not vanish because another job has its dataset for a while.
#[test]
fn a_saved_job_that_cannot_be_restored_is_saved_again() {
    let with_dataset = |name: &str| {
        let given = format!(r#"{{"name":"{name}","source":"/x","into":"mail"}}"#);
        Definition::parse(serde_json::from_str(&given).unwrap()).unwrap()
    };
    let new = || Board::new(512 * MB, 9, Vec::new(), 1);
    let mut first = new();
    first.put(with_dataset("mine"), 1).unwrap();
    let mut second = new();
    second.put(with_dataset("other"), 2).unwrap();
    let problems = second.restore(&first.save(), |_| true, 2).unwrap();
    assert!(problems.len() == 1 && problems[0].contains("mine"), "{problems:?}");
    assert_eq!(second.names(), ["other"]);
    let mut third = new();
    third.restore(&second.save(), |definition| definition.name == "mine", 3).unwrap();
    assert_eq!(third.names(), ["mine"]);
    assert_eq!(third.restore(&Value::Null, |_| true, 4), Err(NoJobs));
}

#[test]
fn figures_add_up_over_runs_and_outlive_the_service() {
    let mut first = board(256, 9, &[("a", ""), ("b", "")]);
    let summary = |text: &str| RunReport::Summary(serde_json::from_str(text).unwrap());
    for (i, counts) in [
        r#"{"added":5,"failed":1,"bytes_read":100,"cache":{"hits":2,"misses":3}}"#,
        r#"{"added":2,"failed":"odd","bytes_read":18446744073709551615}"#,
    ]
    .iter()
    .enumerate()
    {
        first.run("a", Work::Import).unwrap();
        first.tick(i as u64 * 10 + 1);
        first.report("a", summary(counts));
        first.report("a", RunReport::Failed("x".into(), "bad".into()));
        first.ended("a", Some(0), i as u64 * 10 + 2);
    }
    // A stopped run reports its requests, too. Each job has its own rows.
    let requests = |status: u64| {
        json!([{"method": "GET", "host": "s3.test", "status": status, "requests": 2, "received_bytes": 7,
                "seconds": 0.5}])
    };
    for (name, report) in [
        ("a", summary(&json!({"requests": requests(200)}).to_string())),
        ("a", summary(&json!({"requests": requests(206)}).to_string())),
        ("b", RunReport::Error("no source".into(), requests(503))),
    ] {
        first.run(name, Work::Retry).unwrap();
        first.tick(50);
        first.report(name, report);
        first.report(name, RunReport::Failed("x".into(), "bad".into()));
        first.ended(name, Some(0), 51);
    }
    let mut second = board(256, 9, &[("a", ""), ("b", "")]);
    assert_eq!(second.restore(&first.save(), |_| true, 100), Ok(Vec::new()));
    for (board, failures) in [(first, 1), (second, 0)] {
        let text = board.metrics();
        for line in [
            "# TYPE strand_job_documents_total counter\n",
            "strand_job_documents_total{job=\"a\",outcome=\"added\"} 7\n",
            "strand_job_documents_total{job=\"b\",outcome=\"added\"} 0\n",
            "strand_job_cache_misses_total{job=\"a\"} 3\n",
            "strand_job_bytes_read_total{job=\"a\"} 18446744073709552000\n",
            "strand_job_runs_total{job=\"a\",outcome=\"done\"} 4\n",
            "# TYPE strand_job_http_requests_total counter\n",
            "strand_job_http_requests_total{job=\"a\",method=\"GET\",host=\"s3.test\",status=\"2xx\"} 4\n",
            "strand_job_http_requests_total{job=\"b\",method=\"GET\",host=\"s3.test\",status=\"5xx\"} 2\n",
            "strand_job_http_received_bytes_total{job=\"a\",method=\"GET\",host=\"s3.test\",status=\"2xx\"} 14\n",
            "strand_job_http_sent_bytes_total{job=\"a\",method=\"GET\",host=\"s3.test\",status=\"2xx\"} 0\n",
            "strand_job_http_seconds_total{job=\"a\",method=\"GET\",host=\"s3.test\",status=\"2xx\"} 1\n",
            &format!("strand_job_failures{{job=\"a\"}} {failures}\n"),
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}

#[test]
fn a_folder_that_changed_is_imported_when_it_is_quiet() {
    let mut board = board(256, 9, &[("a", r#","watch":"2s""#), ("b", "")]);
    assert_eq!(board.watched_folders(), [("a".to_owned(), "/s/a".to_owned())]);
    board.note_folder_change("a", 1000);
    board.note_folder_change("b", 1000);
    assert_eq!((board.next_wake_ms(), board.tick(2999)), (Some(3000), vec![]));
    board.note_folder_change("a", 2999);
    assert_eq!((board.tick(4998), board.next_wake_ms()), (vec![], Some(4999)));
    assert_eq!(started(&board.tick(4999)), ["a"]);
    // A change while the job runs counts for the next run.
    board.note_folder_change("a", 5000);
    assert_eq!(board.tick(9000), []);
    board.ended("a", Some(0), 9001);
    assert_eq!(started(&board.tick(9001)), ["a"]);
    board.ended("a", Some(0), 9002);
    assert_eq!((board.tick(20_000), board.next_wake_ms()), (vec![], None));
    // A folder that is never quiet is imported too.
    let mut now = 30_000;
    while started(&board.tick(now)).is_empty() {
        board.note_folder_change("a", now);
        now += 500;
        assert!(now < 60_000);
    }
    assert_eq!(now, 30_000 + 2000 * QUIET_TIMES_MAX);
    board.set_watch_error("a", Some("why".to_owned()));
    assert_eq!(
        (&board.show("a", 0).unwrap()["watch"], board.show("b", 0).unwrap().get("watch")),
        (&"why".into(), None)
    );
}
