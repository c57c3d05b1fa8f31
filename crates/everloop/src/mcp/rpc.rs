//! JSON-RPC 2.0: what is a request, and what answers look like.

use serde_json::{Value, json};

/// A request that wants an answer.
pub struct Request<'a> {
    /// Given back with the answer.
    pub id: &'a Value,
    /// What is asked for.
    pub method: &'a str,
    /// With what; null when there is nothing.
    pub params: &'a Value,
}

/// Why a request cannot be answered at all.
#[derive(Debug)]
pub struct Fault {
    code: i32,
    message: String,
}

impl<'a> Request<'a> {
    /// `None` for what wants no answer.
    pub fn read(message: &'a Value) -> Result<Option<Self>, Fault> {
        let Some(fields) = message.as_object() else { return Err(Fault::invalid("a request is an object")) };
        let (id, method) = (fields.get("id"), fields.get("method").and_then(Value::as_str));
        match (id, method) {
            (None, Some(_)) => Ok(None),
            (Some(_), None) if fields.contains_key("result") || fields.contains_key("error") => Ok(None),
            (Some(id @ (Value::String(_) | Value::Number(_))), Some(method)) => {
                Ok(Some(Self { id, method, params: fields.get("params").unwrap_or(&Value::Null) }))
            }
            (Some(_), Some(_)) => Err(Fault::invalid("`id` has to be a text or a number")),
            (_, None) => Err(Fault::invalid("`method` is missing")),
        }
    }
}

impl Fault {
    /// It is not JSON.
    pub fn not_json(error: &serde_json::Error) -> Self {
        Self { code: -32700, message: format!("not JSON: {error}") }
    }

    /// It is JSON and no request.
    pub fn invalid(why: &str) -> Self {
        Self { code: -32600, message: why.to_owned() }
    }

    /// There is no such method.
    pub fn unknown_method(method: &str) -> Self {
        let name: String = method.chars().take(80).collect();
        Self { code: -32601, message: format!("there is no method `{name}`; there are tools/list and tools/call") }
    }

    /// The method is right and its parameters are not.
    pub fn params(why: &str) -> Self {
        Self { code: -32602, message: why.to_owned() }
    }
}

/// The answer to a request.
pub fn done(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The answer to a request that cannot be answered.
pub fn failed(id: &Value, fault: &Fault) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": fault.code, "message": fault.message } })
}

/// The answer to a message that was not read to its end.
pub fn too_long(most_bytes: usize) -> Value {
    failed(&Value::Null, &Fault::invalid(&format!("a message has at most {most_bytes} bytes")))
}
