//! [`Throttle`]: slows requests down when a server is busy.
//!
//! The library retries each request that was answered 503, 429 or 5xx by itself. But a busy server is busy for all
//! requests. So a `Retry-After` delays every request to the server. A refusal halves the maximum number of requests in
//! flight. After every [`ANSWERS_PER_INCREASE`] other answers the maximum increases by one.
//!
//! Every response passes here, so this module also checks the pages of listings ([`page`]).

use super::BACKOFF_MAX;
use super::http::length;
use super::page;
use crate::requests::SentRequest;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use reqwest::{Method, StatusCode};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of requests for documents that wait for an answer at the same time.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 16;
/// Number of answers after which one more request may be in flight.
const ANSWERS_PER_INCREASE: u32 = 8;

/// The limits on requests to one server.
#[derive(Clone, Debug)]
pub(super) struct Throttle(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// No request is sent before this time.
    not_before: Instant,
    /// Maximum number of requests in flight.
    in_flight_max: usize,
    /// Number of responses since `in_flight_max` changed.
    answers: u32,
}

impl Throttle {
    pub(super) fn new() -> Throttle {
        let state = State { not_before: Instant::now(), in_flight_max: REQUESTS_IN_FLIGHT_MAX, answers: 0 };
        Throttle(Arc::new(Mutex::new(state)))
    }
    /// Maximum number of requests in flight.
    pub(super) fn in_flight_max(&self) -> usize {
        self.state().in_flight_max
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The time that a request must wait now.
    fn pause(&self) -> Duration {
        self.state().not_before.saturating_duration_since(Instant::now())
    }
    fn answered(&self, status: StatusCode, retry_after: Option<Duration>) {
        let state = &mut *self.state();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            state.in_flight_max = (state.in_flight_max / 2).max(1);
            state.answers = 0;
            let until = Instant::now() + retry_after.unwrap_or_default().min(BACKOFF_MAX);
            state.not_before = state.not_before.max(until);
            return;
        }
        state.answers += 1;
        if state.answers >= ANSWERS_PER_INCREASE {
            state.answers = 0;
            state.in_flight_max = (state.in_flight_max + 1).min(REQUESTS_IN_FLIGHT_MAX);
        }
    }
}

impl HttpConnector for Throttle {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Throttled { client, throttle: self.clone() }))
    }
}

/// An HTTP client that delays each request as the throttle says.
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
            // Wait twice: another answer may have extended the pause during the first wait.
            for _ in 0..2 {
                tokio::time::sleep(self.throttle.pause()).await;
            }
            let host = request.uri().authority().map_or("", |authority| authority.as_str());
            let body_bytes = request.body().content_length() as u64;
            let sent_request = SentRequest::new(request.method().as_str(), host, body_bytes);
            let is_listing = request.method() == Method::GET && page::is_listing(request.uri().query());
            let response = self.client.execute(request).await?;
            sent_request.answered(response.status().as_u16(), length(response.headers()));
            let retry_after = super::http::retry_after(response.headers());
            self.throttle.answered(response.status(), retry_after);
            if !is_listing || !response.status().is_success() {
                return Ok(response);
            }
            let (head, body) = response.into_parts();
            let body = body.bytes().await?;
            page::check(&body).map_err(|error| HttpError::new(HttpErrorKind::Decode, error))?;
            Ok(HttpResponse::from_parts(head, body.into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_halves_the_requests_in_flight_and_answers_raise_them() {
        let throttle = Throttle::new();
        assert_eq!((throttle.in_flight_max(), throttle.pause()), (REQUESTS_IN_FLIGHT_MAX, Duration::ZERO));
        throttle.answered(StatusCode::SERVICE_UNAVAILABLE, None);
        assert_eq!(
            (throttle.in_flight_max(), throttle.pause()),
            (REQUESTS_IN_FLIGHT_MAX / 2, Duration::ZERO)
        );
        for _ in 0..10 {
            throttle.answered(StatusCode::TOO_MANY_REQUESTS, None);
        }
        assert_eq!(throttle.in_flight_max(), 1);
        for _ in 0..ANSWERS_PER_INCREASE {
            throttle.answered(StatusCode::OK, None);
        }
        assert_eq!(throttle.in_flight_max(), 2);
        for _ in 0..1000 {
            throttle.answered(StatusCode::NOT_FOUND, None);
        }
        assert_eq!(throttle.in_flight_max(), REQUESTS_IN_FLIGHT_MAX);
        throttle.answered(StatusCode::SERVICE_UNAVAILABLE, Some(Duration::from_secs(1 << 40)));
        assert!(throttle.pause() <= BACKOFF_MAX && throttle.pause() > BACKOFF_MAX / 2);
    }
}
