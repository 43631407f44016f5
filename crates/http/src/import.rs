//! `/v1/import`: what importers have recorded in the server, and the progress of running imports.

use crate::body::ResponseBody;
use crate::exchange::{Context, Request, Response};
use crate::json::JsonWriter;
use crate::problem::Problem;
use crate::search::json_response;
use crate::session_client::Gone;
use std::rc::Rc;
use strand_wire::events::Event;

/// Answers `GET /v1/import` with each dataset: the number of its recorded containers, the number of containers whose import
/// was cut short (the next run completes them), and the progress of a running import.
pub async fn status(context: Rc<Context>, _: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let session = &context.session;
    session.command(&[b"IMPORT.VERSION", b"DATASETS"]);
    let datasets = match session.event().await? {
        Event::Open { values, .. } => values,
        Event::Error(text) => return Err(Problem::of_reply(&text)),
        _ => return Err(Gone.into()),
    };
    let mut names = Vec::new();
    for _ in 0..datasets {
        names.push(session.line().await?.unwrap_or_default());
    }
    names.sort();
    Ok(json_response(ResponseBody::generated(|writer| async move {
        let mut json = JsonWriter::new(writer, &context.session);
        json.raw("{\"datasets\":[");
        for (i, name) in names.iter().enumerate() {
            let (containers, interrupted) = containers(&context, name).await?;
            json.raw(if i == 0 { "{\"name\":" } else { ",{\"name\":" });
            json.string(name);
            json.raw(&format!(",\"containers\":{containers},\"interrupted\":{interrupted}"));
            running(&context, name, &mut json).await?;
            json.raw("}");
            json.flush_if_full().await;
        }
        json.raw("]}");
        json.flush().await;
        Ok(())
    })))
}

/// Adds the progress of an import that is writing the dataset now.
async fn running(context: &Context, dataset: &[u8], json: &mut JsonWriter) -> Result<(), Gone> {
    let session = &context.session;
    session.command(&[b"IMPORT.STATUS", dataset]);
    // A map of one dataset, or an empty map when no import runs.
    let Event::Open { values: 1.., .. } = session.event().await? else { return Ok(()) };
    session.skip_value().await?;
    let Event::Open { values, .. } = session.event().await? else { return Ok(()) };
    let mut name = Vec::new();
    for i in 0..values {
        let word = session.line().await.map_err(|_| Gone)?.unwrap_or_default();
        if i.is_multiple_of(2) {
            json.raw(if i == 0 { ",\"running\":{" } else { "," });
            json.string(&word);
            json.raw(":");
            name = word;
            continue;
        }
        let number = std::str::from_utf8(&word).ok().and_then(|text| text.parse::<u64>().ok());
        match number.filter(|_| name != b"path" && name != b"source") {
            Some(number) => json.raw(&number.to_string()),
            None => json.string(&word),
        }
    }
    json.raw("}");
    Ok(())
}

/// The number of recorded containers, and the number of containers with an unfinished run (their names end in a slash).
async fn containers(context: &Context, dataset: &[u8]) -> Result<(u64, u64), Gone> {
    let session = &context.session;
    session.command(&[b"IMPORT.VERSION", b"LIST", dataset]);
    let (mut containers, mut interrupted) = (0, 0);
    if let Event::Open { values, .. } = session.event().await? {
        for _ in 0..values {
            match session.line().await {
                Ok(Some(name)) if name.ends_with(b"/") => interrupted += 1,
                Ok(_) => containers += 1,
                Err(_) => return Err(Gone),
            }
        }
    }
    Ok((containers, interrupted))
}
