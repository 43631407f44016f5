//! [`Throttle`]: keeps requests to the pace that a server wants.
//!
//! The library repeats each request for itself that was answered 503, 429 or 5xx. But the server's answer is meant for
//! all requests. So a `Retry-After` holds back every request to the server. After a refusal only half as many requests
//! are under way at a time. With every few answers one more is allowed.

use super::BACKOFF_MAX;
use super::http::length;
use crate::requests::Begun;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use reqwest::StatusCode;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of requests for documents that are under way at a time.
pub const UNDER_WAY_MAX: usize = 16;
/// Number of responses after which one more request may be under way.
const ANSWERS_PER_MORE: u32 = 8;

/// The pace of requests that a server asks for.
#[derive(Clone, Debug)]
pub(super) struct Throttle(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// No request is sent before this time.
    not_before: Instant,
    /// Requests that may be under way at a time.
    under_way: usize,
    /// Number of responses since `under_way` changed.
    answers: u32,
}

impl Throttle {
    pub(super) fn new() -> Throttle {
        let state = State { not_before: Instant::now(), under_way: UNDER_WAY_MAX, answers: 0 };
        Throttle(Arc::new(Mutex::new(state)))
    }
    /// Requests that may be under way at a time.
    pub(super) fn under_way(&self) -> usize {
        self.state().under_way
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The time that a request has to wait.
    fn pause(&self) -> Duration {
        self.state().not_before.saturating_duration_since(Instant::now())
    }
    fn answered(&self, status: StatusCode, retry_after: Option<Duration>) {
        let state = &mut *self.state();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            state.under_way = (state.under_way / 2).max(1);
            state.answers = 0;
            let until = Instant::now() + retry_after.unwrap_or_default().min(BACKOFF_MAX);
            state.not_before = state.not_before.max(until);
            return;
        }
        state.answers += 1;
        if state.answers >= ANSWERS_PER_MORE {
            state.answers = 0;
            state.under_way = (state.under_way + 1).min(UNDER_WAY_MAX);
        }
    }
}

impl HttpConnector for Throttle {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Throttled { client, throttle: self.clone() }))
    }
}

/// A client that waits before each request, as the server wants it.
#[derive(Debug)]
struct Throttled {
    client: HttpClient,
    throttle: Throttle,
}

impl HttpService for Throttled {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            // The pause may have grown during the wait.
            for _ in 0..2 {
                tokio::time::sleep(self.throttle.pause()).await;
            }
            let host = request.uri().authority().map_or("", |authority| authority.as_str());
            let begun = Begun::new(request.method().as_str(), host, request.body().content_length() as u64);
            let response = self.client.execute(request).await?;
            begun.answered(response.status().as_u16(), length(response.headers()));
            let retry_after = super::http::retry_after(response.headers());
            self.throttle.answered(response.status(), retry_after);
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_halves_and_answers_add_one_by_one() {
        let throttle = Throttle::new();
        assert_eq!((throttle.under_way(), throttle.pause()), (UNDER_WAY_MAX, Duration::ZERO));
        throttle.answered(StatusCode::SERVICE_UNAVAILABLE, None);
        assert_eq!((throttle.under_way(), throttle.pause()), (UNDER_WAY_MAX / 2, Duration::ZERO));
        for _ in 0..10 {
            throttle.answered(StatusCode::TOO_MANY_REQUESTS, None);
        }
        assert_eq!(throttle.under_way(), 1);
        for _ in 0..ANSWERS_PER_MORE {
            throttle.answered(StatusCode::OK, None);
        }
        assert_eq!(throttle.under_way(), 2);
        for _ in 0..1000 {
            throttle.answered(StatusCode::NOT_FOUND, None);
        }
        assert_eq!(throttle.under_way(), UNDER_WAY_MAX);
        throttle.answered(StatusCode::SERVICE_UNAVAILABLE, Some(Duration::from_secs(1 << 40)));
        assert!(throttle.pause() <= BACKOFF_MAX && throttle.pause() > BACKOFF_MAX / 2);
    }
}
