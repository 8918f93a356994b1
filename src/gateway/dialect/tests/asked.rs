//! What each dialect reads in a request, and how it words a refusal.

use super::super::super::dialect;
use super::super::super::exchange::Denied;
use crate::policy::{Dialect, Route};
use serde_json::{Value, json};

fn asked(dialect: Dialect, path: &str, at: &str, body: Value) -> (Result<dialect::Asked, Denied>, Value) {
    let route = Route { method: "POST".to_owned(), path: path.to_owned(), query: Vec::new() };
    let mut body = body;
    let asked = dialect::asked(dialect, &route, at, Some(&mut body));
    (asked, body)
}

fn read(dialect: Dialect, path: &str, body: Value) -> (Option<String>, bool, Option<u64>) {
    let asked = asked(dialect, path, &path.replace("{model}", "in-path"), body).0.unwrap();
    (asked.model, asked.stream, asked.max_output)
}

#[test]
fn the_model_is_read_where_it_stands() {
    let chat = json!({"model": "in-body", "messages": []});
    let body = || Some("in-body".to_owned());
    let path = || Some("in-path".to_owned());
    assert_eq!(read(Dialect::OpenAi, "/v1/chat/completions", chat.clone()).0, body());
    assert_eq!(read(Dialect::OpenRouter, "/api/v1/chat/completions", chat.clone()).0, body());
    assert_eq!(read(Dialect::Anthropic, "/v1/messages", chat.clone()).0, body());
    assert_eq!(read(Dialect::AzureOpenAi, "/openai/v1/chat/completions", chat.clone()).0, body());
    assert_eq!(read(Dialect::AzureOpenAi, "/openai/deployments/{model}/chat/completions", chat).0, path());
    assert_eq!(read(Dialect::Gemini, "/v1beta/models/{model}:generateContent", json!({})).0, path());
    let route = Route { method: "GET".into(), path: "/v1/models/{model}".into(), query: Vec::new() };
    let asked = dialect::asked(Dialect::OpenAi, &route, "/v1/models/gpt-5", None).unwrap();
    assert_eq!((asked.model.as_deref(), asked.max_output), (Some("gpt-5"), Some(0)));
}

#[test]
fn a_request_that_names_no_model_or_reads_two_ways_is_refused() {
    for (dialect, path, body) in [
        (Dialect::OpenAi, "/v1/chat/completions", json!({"messages": []})),
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": ["gpt-5"]})),
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": ""})),
        (Dialect::OpenRouter, "/api/v1/chat/completions", json!({"models": ["a"]})),
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": "m", "stream": "true"})),
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": "m", "stream": 1})),
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": "m", "stream": true, "stream_options": []})),
        (Dialect::OpenRouter, "/api/v1/chat/completions", json!({"model": "m", "models": [1]})),
        (Dialect::Anthropic, "/v1/messages", json!({"model": null})),
        (Dialect::Gemini, "/v1beta/models:generateContent", json!({})),
        (Dialect::Gemini, "/v1beta/models/{model}:generateContent", json!({"model": {"a": 1}})),
    ] {
        let denied = asked(dialect, path, &path.replace("{model}", "m"), body.clone()).0.unwrap_err();
        assert_eq!(denied.status, 403, "{body}");
        assert!(denied.code.starts_with("crashlab_"));
    }
}

#[test]
fn further_models_are_named_so_that_each_is_checked() {
    let others =
        |dialect, path: &str, body| asked(dialect, path, &path.replace("{model}", "m"), body).0.unwrap().others;
    let body = json!({"model": "a", "models": ["b", "c"]});
    assert_eq!(others(Dialect::OpenRouter, "/api/v1/chat/completions", body), ["b", "c"]);
    let body =
        json!({"model": "a", "fallbacks": [{"model": "b"}], "tools": [{"type": "advisor_20260301", "model": "c"}]});
    assert_eq!(others(Dialect::Anthropic, "/v1/messages", body), ["b", "c"]);
    let body = json!({"model": "a", "fallbacks": ["b", {"model": "c"}]});
    assert_eq!(others(Dialect::Anthropic, "/v1/messages", body), ["b", "c"]);
    let path = "/v1beta/models/{model}:countTokens";
    let body = json!({"generate_content_request": {"model": "models/other"}});
    assert_eq!(others(Dialect::Gemini, path, body), ["other"]);
    let body = json!({"model": "models/m", "requests": [{"model": "models/m"}]});
    assert!(others(Dialect::Gemini, path, body).is_empty(), "the path's own again");
}

#[test]
fn the_most_output_is_read_where_the_request_bounds_it() {
    for (dialect, path, body, wanted) in [
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": "m"}), None),
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": "m", "max_tokens": 10}), Some(10)),
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": "m", "max_completion_tokens": 10, "n": 3}), Some(30)),
        (Dialect::OpenAi, "/v1/chat/completions", json!({"model": "m", "max_tokens": 10, "n": "many"}), None),
        (
            Dialect::OpenAi,
            "/v1/chat/completions",
            json!({"model": "m", "max_tokens": u64::MAX, "n": 3}),
            Some(u64::MAX),
        ),
        (Dialect::OpenAi, "/v1/responses", json!({"model": "m", "max_output_tokens": 7}), Some(7)),
        (Dialect::OpenAi, "/v1/embeddings", json!({"model": "m", "input": "x"}), Some(0)),
        (Dialect::Anthropic, "/v1/messages", json!({"model": "m", "max_tokens": 5}), Some(5)),
        (
            Dialect::Anthropic,
            "/v1/messages",
            json!({"model": "m", "max_tokens": 5, "fallbacks": [{"model": "n"}]}),
            Some(10),
        ),
        (Dialect::Anthropic, "/v1/messages/count_tokens", json!({"model": "m"}), Some(0)),
        (
            Dialect::Gemini,
            "/v1beta/models/{model}:generateContent",
            json!({"generation_config": {"maxOutputTokens": 4, "candidate_count": 2}}),
            Some(8),
        ),
        (Dialect::Gemini, "/v1beta/models/{model}:generateContent", json!({}), None),
    ] {
        assert_eq!(read(dialect, path, body.clone()).2, wanted, "{body}");
    }
}

#[test]
fn usage_of_a_stream_is_asked_for_and_hidden_from_who_did_not_ask() {
    let chat = "/v1/chat/completions";
    let ask = |dialect, body| {
        let (asked, body) = asked(dialect, chat, chat, body);
        (asked.unwrap().hide_usage, body["stream_options"].clone())
    };
    let wanted = json!({"include_usage": true});
    assert_eq!(ask(Dialect::OpenAi, json!({"model": "m", "stream": true})), (true, wanted.clone()));
    assert_eq!(ask(Dialect::AzureOpenAi, json!({"model": "m", "stream": true})), (true, wanted.clone()));
    let body = json!({"model": "m", "stream": true, "stream_options": null});
    assert_eq!(ask(Dialect::OpenAi, body), (true, wanted.clone()));
    let body =
        json!({"model": "m", "stream": true, "stream_options": {"include_obfuscation": false, "include_usage": false}});
    assert_eq!(ask(Dialect::OpenAi, body), (true, json!({"include_obfuscation": false, "include_usage": true})));
    let body = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}});
    assert_eq!(ask(Dialect::OpenAi, body), (false, wanted));
    assert_eq!(ask(Dialect::OpenAi, json!({"model": "m"})), (false, Value::Null));
    assert_eq!(
        ask(Dialect::OpenRouter, json!({"model": "m", "stream": true})),
        (false, Value::Null),
        "it comes unasked"
    );
    let responses = asked(Dialect::OpenAi, "/v1/responses", "/v1/responses", json!({"model": "m", "stream": true})).1;
    assert_eq!(responses["stream_options"], Value::Null, "it comes unasked");
}

#[test]
fn a_refusal_has_the_providers_own_form() {
    let denied = |status| Denied::new("model", "crashlab_model_not_allowed", "no").status(status);
    let body = |dialect, status| dialect::error_body(dialect, &denied(status));
    let openai = json!({"error": {"message": "no", "type": "permission_error", "param": null, "code": "crashlab_model_not_allowed"}});
    assert_eq!(body(Dialect::OpenAi, 403), openai);
    assert_eq!(body(Dialect::AzureOpenAi, 403), openai);
    let anthropic =
        |kind| json!({"type": "error", "error": {"type": kind, "message": "no", "code": "crashlab_model_not_allowed"}});
    assert_eq!(body(Dialect::Anthropic, 401), anthropic("authentication_error"));
    assert_eq!(body(Dialect::Anthropic, 403), anthropic("permission_error"));
    assert_eq!(body(Dialect::Anthropic, 413), anthropic("request_too_large"));
    assert_eq!(body(Dialect::Anthropic, 502), anthropic("api_error"));
    let gemini = body(Dialect::Gemini, 403);
    assert_eq!((&gemini["error"]["code"], &gemini["error"]["status"]), (&json!(403), &json!("PERMISSION_DENIED")));
    assert_eq!(gemini["error"]["details"][0]["reason"], "crashlab_model_not_allowed");
    let openrouter = body(Dialect::OpenRouter, 403);
    assert_eq!(
        (&openrouter["error"]["code"], &openrouter["error"]["metadata"]["error_type"]),
        (&json!(403), &json!("crashlab_model_not_allowed"))
    );
}

#[test]
fn no_header_that_chooses_an_account_or_a_credential_goes_on() {
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::AzureOpenAi, Dialect::OpenRouter] {
        for name in dialect::forwardable(dialect) {
            assert_eq!(*name, name.to_ascii_lowercase());
            let is_bad =
                ["auth", "key", "cookie", "organization", "project", "workspace", "user", "host", "length", "encoding"];
            let is_idempotency = *name == "idempotency-key";
            assert!(is_idempotency || !is_bad.iter().any(|part| name.contains(part)), "{name}");
        }
    }
}
