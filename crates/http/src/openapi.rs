//! `/v1/openapi.json`: the routes as an OpenAPI 3.1 document.

use crate::body::ResponseBody;
use crate::problem::{PROBLEM_JSON, Problem};
use crate::routes::{ROUTES, Route};
use crate::search::json_response;
use crate::serve::{Context, Request, Response};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::rc::Rc;
use std::sync::OnceLock;

/// `GET /v1/openapi.json`
pub async fn describe(_: Rc<Context>, _: Request, _: Vec<u8>) -> Result<Response, Problem> {
    static TEXT: OnceLock<String> = OnceLock::new();
    Ok(json_response(ResponseBody::whole(TEXT.get_or_init(|| document().to_string()).as_str())))
}

/// The description.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
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
                "bearer": { "type": "http", "scheme": "bearer", "description": "user:password, or the default user's password" },
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
    for (status, meaning, media) in route.gives {
        let mut response = json!({ "description": meaning });
        if !media.is_empty() && !is_head {
            response["content"] = json!({ *media: {} });
        }
        responses.insert(status.to_string(), response);
    }
    responses.insert(
        "default".into(),
        match is_head {
            true => json!({ "description": "A problem; its document is GET's" }),
            false => json!({ "$ref": "#/components/responses/Problem" }),
        },
    );
    let mut operation = json!({ "operationId": id, "summary": route.summary, "parameters": parameters, "responses": responses });
    if !route.takes.is_empty() {
        let content: Map<String, Value> = route.takes.iter().map(|m| (m.to_string(), json!({}))).collect();
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
            "code": { "type": "string", "description": "The code of the command's error" },
            "line": { "type": "integer" },
            "column": { "type": "integer" },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_routes_and_no_others() {
        let document = document();
        let mut described = Vec::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                described.push((path.clone(), method.to_ascii_uppercase()));
                assert!(operation["responses"]["default"].is_object());
                let ids = operation["parameters"].as_array().expect("parameters");
                assert!(ids.iter().all(|p| p["in"] != "path" || path.contains(p["name"].as_str().unwrap())));
            }
        }
        let mut routes = Vec::new();
        for route in ROUTES {
            routes.push((route.path.to_string(), route.method.to_string()));
            if route.method == Method::GET {
                routes.push((route.path.to_string(), "HEAD".to_string()));
            }
        }
        described.sort();
        routes.sort();
        assert_eq!(described, routes);
        let mut ids: Vec<&str> = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|m| m.as_object().unwrap().values())
            .map(|o| o["operationId"].as_str().unwrap())
            .collect();
        let all = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), all, "operations have names of their own");
    }
}
