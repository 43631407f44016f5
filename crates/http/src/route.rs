//! [`Route`]: a way to ask for something, as dispatch and the description both need it.

use crate::exchange::{Context, Request, Response};
use crate::problem::Problem;
use hyper::Method;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// What a handler gives.
pub type Answer = Pin<Box<dyn Future<Output = Result<Response, Problem>>>>;

/// A parameter, for the description.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// `path`, `query` or `header`.
    pub place: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// It must be there.
    pub required: bool,
    /// What it is.
    pub summary: &'static str,
}

/// A way to ask for something.
pub struct Route {
    /// The method; GET answers HEAD too.
    pub method: Method,
    /// The path; what stands in braces is the rest of it, percent-decoded.
    pub path: &'static str,
    /// A name for clients that are made from the description.
    pub operation: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// The media types of the body that it takes.
    pub takes: &'static [&'static str],
    /// Responses that are no problem documents: status, meaning and media type (empty: no body).
    pub gives: &'static [(u16, &'static str, &'static str)],
    /// False: answered without authentication and without a command.
    pub needs_session: bool,
    /// The handler.
    pub run: fn(Rc<Context>, Request, Vec<u8>) -> Answer,
}

/// A route and what its braces stand for.
pub struct Found {
    /// The route.
    pub route: &'static Route,
    /// What stands in place of the braces.
    pub rest: Vec<u8>,
}
