//! [`Route`]: a route, with the data for dispatch and for the OpenAPI description.

use crate::exchange::{Context, Request, Response};
use crate::problem::Problem;
use hyper::Method;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// The future that a handler returns.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response, Problem>>>>;

/// A parameter of a route, for the description.
#[derive(Debug)]
pub struct Parameter {
    /// Name of the query parameter.
    pub name: &'static str,
    /// Where the parameter is: `path`, `query` or `header`.
    pub place: &'static str,
    /// Type of the parameter: `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// True when the parameter is required.
    pub required: bool,
    /// What the parameter means.
    pub summary: &'static str,
}

/// A route: a method, a path and a handler.
pub struct Route {
    /// The method. A route for GET also serves HEAD.
    pub method: Method,
    /// The path. Braces match the rest of the path, percent-decoded.
    pub path: &'static str,
    /// The operation's name, for generated clients.
    pub operation: &'static str,
    /// A summary of the route.
    pub summary: &'static str,
    /// Parameters of the route.
    pub parameters: &'static [Parameter],
    /// The media types of the body that the route accepts.
    pub accepts: &'static [&'static str],
    /// Responses other than problem documents: status, meaning, and media type (empty: the response has no body).
    pub responses: &'static [(u16, &'static str, &'static str)],
    /// False for a route that needs neither a login nor a command.
    pub needs_session: bool,
    /// The handler of the route.
    pub run: fn(Rc<Context>, Request, Vec<u8>) -> HandlerFuture,
}

/// A matched route and the text that its braces match.
pub struct Found {
    /// The route that matches the request.
    pub route: &'static Route,
    /// The text that the braces in the route's path match.
    pub rest: Vec<u8>,
}
