//! The board's state as JSON: for clients that ask for it, and for a service that restores it after a restart.

use super::{Board, Definition, Ending, JOB_BYTES, Job, JobError, Totals, Work, schedule};
use crate::filter::ByteSize;
use serde_json::{Value, json};

impl Board {
    /// The failed documents of the job's last run as JSON: path and reason.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn errors(&self, name: &str) -> Result<Value, JobError> {
        let job = self.jobs.get(name).ok_or_else(|| JobError::NoJob(name.into()))?;
        let failed = job.errors.iter().map(|(path, reason)| json!({"path": path, "reason": reason}));
        Ok(json!({"name": name, "last": job.last, "failed": failed.collect::<Vec<_>>()}))
    }

    /// The budget of memory, its use, and the state of all jobs, as JSON.
    pub fn list(&self, now_ms: u64) -> Value {
        let jobs: Vec<_> = self.jobs.keys().filter_map(|name| self.show(name, now_ms)).collect();
        let (budget, held) = (self.ledger.budget(), self.ledger.held());
        json!({"budget_bytes": budget, "held_bytes": held, "running": self.running(), "jobs": jobs})
    }

    /// The state of one job, as JSON.
    pub fn show(&self, name: &str, now_ms: u64) -> Option<Value> {
        let job = self.jobs.get(name)?;
        let state = match (&job.running, &job.queued) {
            (Some(running), _) if running.ending.is_some() => "ending",
            (Some(_), _) if job.is_paused => "paused",
            (Some(running), _) if running.memory_request.is_some() => "waiting for memory",
            (Some(_), _) => "running",
            _ if job.is_paused => "paused",
            (None, Some(_)) => "waiting",
            (None, None) => "idle",
        };
        let mut shown = json!({
            "name": name, "state": state, "source": without_password(&job.definition.source),
            "into": job.definition.into, "priority": job.definition.priority,
            "runs": job.runs, "failed": job.failures(), "held_bytes": self.ledger.held_by(name), "last": job.last,
        });
        if let Some(due) = job.due_ms {
            shown["due_ms"] = due.into();
        }
        if job.definition.watch.is_some() {
            shown["watch"] = job.unwatched.as_deref().unwrap_or("watched").into();
        }
        let needs = match (&job.running, &job.queued) {
            (Some(running), _) => running.memory_request.map(|(bytes, _)| bytes),
            (None, Some(_)) if !job.is_paused => Some(JOB_BYTES),
            _ => None,
        };
        if let Some(needs) = needs {
            let missing = ByteSize(needs.saturating_sub(self.ledger.free()));
            let pause_ms = job.not_before_ms.saturating_sub(now_ms);
            shown["waits"] = match missing.0 {
                _ if job.running.is_none() && pause_ms > 0 => {
                    format!("it broke off: the next attempt comes in {} s", pause_ms.div_ceil(1000)).into()
                }
                0 if job.running.is_some() => "for its turn".into(),
                0 => "for a free place".into(),
                _ => format!("would need {}, waiting for {missing}", ByteSize(needs)).into(),
            };
        }
        if let Some(running) = &job.running {
            shown["started_ms"] = running.since_ms.into();
            shown["progress"] = Value::Object(running.progress.clone());
            if let Some(forecast) = &running.forecast {
                shown["forecast"] = Value::Object(forecast.clone());
            }
            if let Some(waiting) = &running.waiting {
                shown["waits"] = waiting.as_str().into();
            }
        }
        Some(shown)
    }

    /// The state as JSON, for [`Board::restore`].
    pub fn save(&self) -> Value {
        // The job's process still ends, but a service that starts again must not have the job.
        let is_removed = |job: &&Job| job.ending() == Some(Ending::Removed);
        let jobs = self.jobs.values().filter(|job| !is_removed(job)).map(|job| {
            let is_cancelled = job.ending() == Some(Ending::Cancelled);
            let unfinished = job.running.is_some() && !is_cancelled || job.queued.is_some();
            json!({
                "definition": job.definition.given, "paused": job.is_paused, "last": job.last, "last_start_ms": job.last_start_ms,
                "runs": job.runs, "totals": job.totals.save(), "unfinished": unfinished,
            })
        });
        json!({"jobs": jobs.chain(self.unrestored.iter().cloned()).collect::<Vec<_>>()})
    }

    /// Restores what [`Board::save`] returned. A job that was running or queued is queued again. `keep` decides whether
    /// a saved job that is not on the board is added. Returns a line for each job that cannot be restored, for example
    /// because another job has its dataset now. Such a job is saved again as it is, and may be restored after a restart.
    ///
    /// # Errors
    /// When `saved` has no list of jobs.
    pub fn restore(
        &mut self,
        saved: &Value,
        keep: impl Fn(&Definition) -> bool,
        now_ms: u64,
    ) -> Result<Vec<String>, NoJobs> {
        let mut problems = Vec::new();
        for one in saved["jobs"].as_array().ok_or(NoJobs)? {
            let given = one["definition"].as_object().cloned().unwrap_or_default();
            let shown = given.get("name").and_then(Value::as_str).unwrap_or("without a name").to_owned();
            let parsed = Definition::parse(given).map_err(|error| error.to_string());
            let restored = parsed.and_then(|definition| {
                let name = definition.name.clone();
                match self.jobs.contains_key(&name) {
                    true => Ok(Some(name)),
                    false if !keep(&definition) => Ok(None),
                    false => match self.put(definition, now_ms) {
                        Ok(_) => Ok(Some(name)),
                        Err(error) => Err(error.to_string()),
                    },
                }
            });
            let name = match restored {
                Ok(Some(name)) => name,
                Ok(None) => continue,
                // A job of this name is on the board, so only the figures of its earlier runs are lost.
                Err(_) if self.jobs.contains_key(&shown) => continue,
                Err(error) => {
                    problems.push(format!("the saved job {shown} cannot be restored: {error}"));
                    self.unrestored.push(one.clone());
                    continue;
                }
            };
            let ticket = self.next_ticket();
            let jitter = self.jobs[&name].definition.jitter;
            let jitter = self.jitter_ms(jitter);
            let job = self.jobs.get_mut(&name).expect("just put");
            job.is_paused = one["paused"] == true;
            job.last = one["last"].clone();
            job.last_start_ms = one["last_start_ms"].as_u64();
            job.totals = Totals::restore(&one["totals"]);
            job.runs = one["runs"].as_u64().unwrap_or(0);
            job.queued = (one["unfinished"] == true).then_some((Work::Import, ticket));
            job.due_ms = schedule::next_ms(&job.definition.trigger, job.last_start_ms, now_ms, jitter);
        }
        Ok(problems)
    }
}

impl Job {
    /// Number of documents that failed in the last run. The list of failed documents has a limit, and is not saved. A run
    /// that has reported no summary yet, or never did, has only the list.
    pub(super) fn failures(&self) -> u64 {
        let listed = self.errors.len() as u64;
        self.last["summary"]["failed"].as_u64().filter(|_| self.running.is_none()).unwrap_or(listed)
    }

    /// Why the job's run is being ended.
    fn ending(&self) -> Option<Ending> {
        self.running.as_ref()?.ending
    }
}

/// A saved state has no list of jobs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a list \"jobs\"")]
pub struct NoJobs;

/// A source or a sink as it is shown: the password of a valid URL is `***`. So is the user of `http` and `https` that has
/// no password: such a user is a token.
pub fn without_password(source: &str) -> String {
    let Some((scheme, rest)) = source.split_once("://") else { return source.to_owned() };
    let authority = rest.find(['/', '?', '#']).map_or(rest, |end| &rest[..end]);
    let Some((user, _)) = authority.rsplit_once('@') else { return source.to_owned() };
    let after = &rest[user.len()..];
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:***{after}"),
        None if scheme.ends_with("http") || scheme.ends_with("https") => format!("{scheme}://***{after}"),
        None => source.to_owned(),
    }
}

#[test]
fn a_password_in_a_source_is_not_shown() {
    for (source, shown) in [
        ("http://user:a:b@c@host:80/x.zip?u=a@b", "http://user:***@host:80/x.zip?u=a@b"),
        ("https://token@host/x", "https://***@host/x"),
        ("solr+http://token@host/solr/c", "solr+http://***@host/solr/c"),
        ("git+ssh://user@host/x", "git+ssh://user@host/x"),
        ("https://host/a:b@c", "https://host/a:b@c"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("/a:b@c", "/a:b@c"),
    ] {
        assert_eq!(without_password(source), shown);
    }
}
