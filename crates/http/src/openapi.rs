//! `/v1/openapi.json`: the routes as an OpenAPI 3.1 document.

use crate::problem::PROBLEM_JSON;
use crate::route::Route;
use hyper::Method;
use serde_json::{Map, Value, json};

/// Creates the OpenAPI document of `routes`.
pub fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route, route.operation.into(), false);
        if route.method == Method::GET {
            path["head"] = operation(route, format!("{}Head", route.operation), true);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Strand",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Keys, commands, search, import and metrics over HTTP",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic" },
                "bearer": { "type": "http", "scheme": "bearer", "description": "user:password, or only the password of the default user" },
            },
            "schemas": { "Problem": problem_schema() },
            "responses": {
                "Problem": {
                    "description": "A problem document (RFC 9457)",
                    "content": { PROBLEM_JSON: { "schema": { "$ref": "#/components/schemas/Problem" } } },
                },
            },
        },
        "security": [{}, { "basic": [] }, { "bearer": [] }],
    })
}

fn operation(route: &Route, id: String, is_head: bool) -> Value {
    let parameters: Vec<Value> = route
        .parameters
        .iter()
        .map(|p| {
            json!({
                "name": p.name,
                "in": p.place,
                "required": p.required,
                "description": p.summary,
                "schema": if p.kind == "integer" { json!({ "type": "integer", "minimum": 0 }) } else { json!({ "type": p.kind }) },
            })
        })
        .collect();
    let mut responses = Map::new();
    for (status, meaning, media) in route.responses {
        let mut response = json!({ "description": meaning });
        if !media.is_empty() && !is_head {
            response["content"] = json!({ *media: {} });
        }
        responses.insert(status.to_string(), response);
    }
    responses.insert(
        "default".into(),
        match is_head {
            true => json!({ "description": "A problem, without a body; GET returns the problem document" }),
            false => json!({ "$ref": "#/components/responses/Problem" }),
        },
    );
    let mut operation = json!({ "operationId": id, "summary": route.summary, "parameters": parameters, "responses": responses });
    if !route.accepts.is_empty() {
        let content: Map<String, Value> = route.accepts.iter().map(|m| (m.to_string(), json!({}))).collect();
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    if !route.needs_session {
        operation["security"] = json!([]);
    }
    operation
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "code": { "type": "string", "description": "The error code of the command, such as WRONGTYPE" },
            "line": { "type": "integer" },
            "column": { "type": "integer" },
        },
    })
}
