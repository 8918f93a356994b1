//! G10: a request with each way out, for each dialect, and those that are none.

use super::super::super::{dialect, grants};
use crate::policy::Grant::{CodeExecution, ComputerUse, RemoteMcp, RemoteMedia, Storage, WebFetch, WebSearch};
use crate::policy::{Dialect, Grant, Route};
use serde_json::{Value, json};

const EVERY: [Grant; 7] = [WebSearch, WebFetch, CodeExecution, ComputerUse, RemoteMcp, RemoteMedia, Storage];

fn route(path: &str) -> Route {
    Route { method: "POST".to_owned(), path: path.to_owned(), query: Vec::new() }
}

fn judge(dialect: Dialect, path: &str, body: &Value, granted: &[Grant]) -> Result<Value, super::super::Denied> {
    let route = route(path);
    let at = path.replace("{model}", "m");
    let mut body = body.clone();
    dialect::asked(dialect, &route, &at, Some(&mut body))?;
    grants::check(dialect, &route, &at, Some(&mut body), granted)?;
    Ok(body)
}

/// Passes with exactly these grants: each alone is not enough, and without all others it is.
fn needs(dialect: Dialect, path: &str, body: &Value, wanted: &[Grant]) {
    let all_but = |taken: &Grant| EVERY.iter().copied().filter(|grant| grant != taken).collect::<Vec<_>>();
    let denied = |granted: &[Grant]| judge(dialect, path, body, granted).is_err();
    for grant in wanted {
        assert!(denied(&all_but(grant)), "{dialect:?} {body} passed without {}", grant.as_str());
    }
    if let Err(denied) = judge(dialect, path, body, wanted) {
        panic!("{dialect:?} {body} did not pass with {wanted:?}: {}", denied.message);
    }
}

fn passes(dialect: Dialect, path: &str, body: &Value) {
    needs(dialect, path, body, &[]);
}

/// Passes only with every grant.
fn is_unknown(dialect: Dialect, path: &str, body: &Value) {
    needs(dialect, path, body, &EVERY);
    let denied = judge(dialect, path, body, &[]).unwrap_err();
    assert_eq!((denied.status, denied.code), (403, "crashlab_not_known"), "{body}");
}

fn with(base: &Value, more: Value) -> Value {
    let mut body = base.clone();
    let Value::Object(more) = more else { panic!("not an object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

#[test]
fn responses_of_each_server_of_openais_api() {
    let servers = [
        (Dialect::OpenAi, "/v1/responses"),
        (Dialect::AzureOpenAi, "/openai/responses"),
        (Dialect::AzureOpenAi, "/openai/v1/responses"),
        (Dialect::OpenRouter, "/api/v1/responses"),
    ];
    let base = json!({"model": "gpt-5", "input": "hi"});
    let items = |items: Value| with(&base, json!({"input": items}));
    let tools = |tools: Value| with(&base, json!({"tools": tools}));
    for body in [
        base.clone(),
        with(
            &base,
            json!({"temperature": 1, "top_logprobs": 2, "metadata": {"a": "b"}, "store": false, "background": false}),
        ),
        with(
            &base,
            json!({"text": {"format": {"type": "json_schema", "schema": {"type": "object"}}}, "tool_choice": "auto"}),
        ),
        with(&base, json!({"previous_response_id": null, "conversation": null, "prompt": null, "new_field": null})),
        tools(json!([{"type": "function", "name": "f", "parameters": {"properties": {"type": {"enum": ["mcp"]}}}}])),
        tools(json!([{"type": "custom", "name": "c"}, {"type": "local_shell"}, {"type": "apply_patch"}])),
        tools(json!([{"type": "shell", "environment": {"type": "local"}}])),
        tools(json!([{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}])),
        with(&base, json!({"tool_choice": {"type": "function", "name": "f"}})),
        items(
            json!([{"role": "user", "content": "hi"}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "https://a"}]}]),
        ),
        items(
            json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]),
        ),
        items(
            json!([{"role": "user", "content": [{"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a"}]}]),
        ),
        items(json!([{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"url\": \"https://a\"}"},
            {"type": "function_call_output", "call_id": "1", "output": "https://a"}])),
        items(json!([{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"}])),
    ] {
        servers.iter().for_each(|(dialect, path)| passes(*dialect, path, &body));
    }
    for (body, wanted) in [
        (with(&base, json!({"store": true})), vec![Storage]),
        (with(&base, json!({"store": "true"})), vec![Storage]),
        (with(&base, json!({"store": []})), vec![Storage]),
        (with(&base, json!({"background": true})), vec![Storage]),
        (with(&base, json!({"previous_response_id": "resp_1"})), vec![Storage]),
        (with(&base, json!({"conversation": "conv_1"})), vec![Storage]),
        (with(&base, json!({"conversation": {"id": "conv_1"}})), vec![Storage]),
        (tools(json!([{"type": "web_search"}])), vec![WebSearch]),
        (tools(json!([{"type": "function", "name": "f"}, {"type": "web_search_preview_2025_03_11"}])), vec![WebSearch]),
        (tools(json!([{"type": "namespace", "tools": [{"type": "web_search"}]}])), vec![WebSearch]),
        (tools(json!([{"type": "file_search", "vector_store_ids": ["vs_1"]}])), vec![Storage]),
        (tools(json!([{"type": "code_interpreter", "container": {"type": "auto"}}])), vec![CodeExecution]),
        (tools(json!([{"type": "code_interpreter", "container": "cntr_1"}])), vec![CodeExecution, Storage]),
        (
            tools(json!([{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}}])),
            vec![CodeExecution, Storage],
        ),
        (
            tools(
                json!([{"type": "code_interpreter", "container": {"type": "auto", "network_policy": {"type": "allowlist"}}}]),
            ),
            vec![CodeExecution, WebFetch],
        ),
        (tools(json!([{"type": "shell"}])), vec![CodeExecution]),
        (tools(json!([{"type": "shell", "environment": {"type": "container_auto"}}])), vec![CodeExecution]),
        (tools(json!([{"type": "programmatic_tool_calling"}])), vec![CodeExecution]),
        (tools(json!([{"type": "computer_use_preview"}])), vec![ComputerUse]),
        (tools(json!([{"type": "mcp", "server_url": "https://a"}])), vec![RemoteMcp]),
        (tools(json!([{"type": "mcp", "server_label": "a", "connector_id": "connector_gmail"}])), vec![RemoteMcp]),
        (with(&base, json!({"tool_choice": {"type": "mcp", "server_label": "a"}})), vec![RemoteMcp]),
        (
            with(&base, json!({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "web_search"}]}})),
            vec![WebSearch],
        ),
        (
            items(json!([{"role": "user", "content": [{"type": "input_image", "image_url": "https://a/b.png"}]}])),
            vec![RemoteMedia],
        ),
        (items(json!([{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}])), vec![Storage]),
        (
            items(json!([{"role": "user", "content": [{"type": "input_file", "file_url": "https://a"}]}])),
            vec![RemoteMedia],
        ),
        (
            items(
                json!([{"type": "function_call_output", "output": [{"type": "input_image", "image_url": "HTTPS://a"}]}]),
            ),
            vec![RemoteMedia],
        ),
        (items(json!([{"type": "item_reference", "id": "msg_1"}])), vec![Storage]),
        (items(json!([{"id": "msg_1"}])), vec![Storage]),
        (items(json!([{"type": "reasoning", "id": "rs_1", "summary": []}])), vec![Storage]),
        (items(json!([{"type": "mcp_approval_response", "approve": true}])), vec![RemoteMcp]),
        (items(json!([{"type": "program", "code": "x"}])), vec![CodeExecution]),
        (items(json!([{"type": "additional_tools", "tools": [{"type": "mcp"}]}])), vec![RemoteMcp]),
    ] {
        servers.iter().for_each(|(dialect, path)| needs(*dialect, path, &body, &wanted));
    }
    for body in [
        tools(json!([{"type": "teleport"}])),
        tools(json!([{"name": "no type"}])),
        tools(json!([{"type": "image_generation"}])),
        items(json!([{"type": "hologram"}])),
        items(json!([{"role": "user", "content": [{"type": "input_hologram"}]}])),
        with(&base, json!({"prompt": {"id": "pmpt_1"}})),
        with(&base, json!({"search_the_web": true})),
        with(&base, json!({"endpoint": "https://a"})),
        with(&base, json!({"numbers": [1, "https://a"]})),
        with(&base, json!({"search_the_web": 1})),
        with(&base, json!({"multi_agent": {"enabled": true}})),
        tools(json!([{"type": "connector", "connector_id": "connector_gmail"}])),
    ] {
        servers.iter().for_each(|(dialect, path)| is_unknown(*dialect, path, &body));
    }
}

#[test]
fn an_answer_is_not_stored_unless_that_is_granted() {
    let judged = |body: Value, granted: &[Grant]| judge(Dialect::OpenAi, "/v1/responses", &body, granted).unwrap();
    let base = json!({"model": "gpt-5", "input": "hi"});
    assert_eq!(judged(base.clone(), &[])["store"], json!(false));
    assert_eq!(judged(with(&base, json!({"store": null})), &[])["store"], json!(false));
    assert_eq!(judged(base.clone(), &[Storage]), base, "granted: as it came");
    let azure = judge(Dialect::AzureOpenAi, "/openai/v1/responses", &base, &[]).unwrap();
    assert_eq!(azure["store"], json!(false));
    let chat = json!({"model": "gpt-5", "messages": []});
    assert_eq!(judge(Dialect::OpenAi, "/v1/chat/completions", &chat, &[]).unwrap(), chat, "here it is false by itself");
}

#[test]
fn chats_of_each_server_of_openais_api() {
    let servers = [
        (Dialect::OpenAi, "/v1/chat/completions"),
        (Dialect::AzureOpenAi, "/openai/v1/chat/completions"),
        (Dialect::AzureOpenAi, "/openai/deployments/{model}/chat/completions"),
        (Dialect::OpenRouter, "/api/v1/chat/completions"),
    ];
    let base = json!({"model": "gpt-5", "messages": [{"role": "user", "content": "https://a"}]});
    let parts = |parts: Value| with(&base, json!({"messages": [{"role": "user", "content": parts}]}));
    for body in [
        base.clone(),
        parts(
            json!([{"type": "text", "text": "https://a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]),
        ),
        parts(json!([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}])),
        parts(json!([{"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}}])),
        with(
            &base,
            json!({"tools": [{"type": "function", "function": {"name": "web_search"}}, {"type": "custom", "custom": {"name": "c"}}]}),
        ),
        with(
            &base,
            json!({"functions": [{"name": "f"}], "n": 2, "store": false, "top_k": 4, "stop_token_ids": [1, 2]}),
        ),
        with(&base, json!({"chat_template_kwargs": {"enable_thinking": false}})),
        with(
            &base,
            json!({"messages": [{"role": "tool", "content": [{"type": "text", "text": "x"}]}, {"role": "assistant", "content": null,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]}),
        ),
    ] {
        servers.iter().for_each(|(dialect, path)| passes(*dialect, path, &body));
    }
    for (body, wanted) in [
        (with(&base, json!({"web_search_options": {}})), WebSearch),
        (with(&base, json!({"store": true})), Storage),
        (with(&base, json!({"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]})), Storage),
        (with(&base, json!({"tools": [{"type": "mcp", "server_url": "https://a"}]})), RemoteMcp),
        (with(&base, json!({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]})), CodeExecution),
        (with(&base, json!({"tools": [{"type": "computer_use_preview"}]})), ComputerUse),
        (with(&base, json!({"model": "gpt-5-search-api"})), WebSearch),
        (with(&base, json!({"model": "gpt-4o-mini-search-preview-2025-03-11"})), WebSearch),
        (with(&base, json!({"tools": [{"type": "web_search"}]})), WebSearch),
        (with(&base, json!({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]})), Storage),
        (parts(json!([{"type": "image_url", "image_url": {"url": "https://a/b.png"}}])), RemoteMedia),
        (parts(json!([{"type": "image_url", "image_url": "http://169.254.169.254/"}])), RemoteMedia),
        (parts(json!([{"type": "image_url", "image_url": {"url": {"url": "https://a"}}}])), RemoteMedia),
        (parts(json!([{"type": "video_url", "video_url": {"url": "https://a"}}])), RemoteMedia),
        (parts(json!([{"type": "file", "file": {"file_id": "file-1"}}])), Storage),
        (parts(json!([{"type": "file", "file": {"file_data": "https://a/b.pdf"}}])), RemoteMedia),
        (parts(json!({"type": "image_url", "image_url": {"url": "https://a"}})), RemoteMedia),
    ] {
        // A deployment of Azure is called what its owner calls it.
        let is_by_name = body["model"] != "gpt-5";
        let these = servers.iter().filter(|(dialect, _)| !is_by_name || *dialect != Dialect::AzureOpenAi);
        these.for_each(|(dialect, path)| needs(*dialect, path, &body, &[wanted]));
    }
    for body in [
        parts(json!([{"type": "hologram"}])),
        with(&base, json!({"tools": [{"type": "teleport"}]})),
        with(&base, json!({"enable_search": true})),
        with(&base, json!({"enable_search": 1})),
        with(&base, json!({"search_parameters": {"mode": "on"}})),
        with(&base, json!({"data_sources": [{"type": "azure_search"}]})),
        with(&base, json!({"mcp_servers": ["https://a"]})),
    ] {
        let these =
            servers.iter().filter(|(dialect, _)| body.get("data_sources").is_none() || *dialect == Dialect::OpenAi);
        these.for_each(|(dialect, path)| is_unknown(*dialect, path, &body));
    }
}

#[test]
fn anthropic() {
    let (dialect, path) = (Dialect::Anthropic, "/v1/messages");
    let base = json!({"model": "claude-sonnet-5", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]});
    let blocks = |blocks: Value| with(&base, json!({"messages": [{"role": "user", "content": blocks}]}));
    let tools = |tools: Value| with(&base, json!({"tools": tools}));
    for body in [
        base.clone(),
        with(
            &base,
            json!({"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}], "thinking": {"type": "enabled", "budget_tokens": 5}}),
        ),
        tools(
            json!([{"name": "f", "input_schema": {"type": "object"}}, {"type": "custom", "name": "g", "input_schema": {}}]),
        ),
        tools(
            json!([{"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "e"}, {"type": "memory_20250818", "name": "m"}]),
        ),
        blocks(json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}])),
        blocks(
            json!([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "https://a"}}]),
        ),
        blocks(
            json!([{"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}}]),
        ),
        blocks(
            json!([{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "x"}]}, {"type": "tool_result", "tool_use_id": "2", "content": "x"}]),
        ),
        blocks(
            json!([{"type": "thinking", "thinking": "x", "signature": "s"}, {"type": "tool_use", "id": "1", "name": "web_search", "input": {}}]),
        ),
        with(&base, json!({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}})),
    ] {
        passes(dialect, path, &body);
    }
    for (body, wanted) in [
        (tools(json!([{"type": "web_search_20250305", "name": "web_search"}])), vec![WebSearch]),
        (
            tools(json!([{"name": "f", "input_schema": {}}, {"type": "web_fetch_20260318", "name": "web_fetch"}])),
            vec![WebFetch],
        ),
        (tools(json!([{"type": "code_execution_20250825", "name": "code_execution"}])), vec![CodeExecution]),
        (tools(json!([{"type": "computer_20250124", "name": "computer"}])), vec![ComputerUse]),
        (tools(json!([{"type": "browser_toolset_20260801"}])), vec![ComputerUse]),
        (tools(json!([{"type": "mcp_toolset", "mcp_server_name": "a"}])), vec![RemoteMcp]),
        (with(&base, json!({"mcp_servers": [{"type": "url", "url": "https://a", "name": "a"}]})), vec![RemoteMcp]),
        (
            with(&base, json!({"container": {"skills": [{"type": "anthropic", "skill_id": "xlsx"}]}})),
            vec![CodeExecution, Storage],
        ),
        (with(&base, json!({"container": "container_1"})), vec![CodeExecution, Storage]),
        (with(&base, json!({"thread": {"type": "create"}})), vec![Storage]),
        (blocks(json!([{"type": "image", "source": {"type": "url", "url": "https://a"}}])), vec![RemoteMedia]),
        (blocks(json!([{"type": "document", "source": {"type": "url", "url": "https://a"}}])), vec![RemoteMedia]),
        (blocks(json!([{"type": "document", "source": {"type": "file", "file_id": "file_1"}}])), vec![Storage]),
        (
            blocks(
                json!([{"type": "tool_result", "content": [{"type": "image", "source": {"type": "url", "url": "https://a"}}]}]),
            ),
            vec![RemoteMedia],
        ),
        (
            blocks(
                json!([{"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": {"type": "url", "url": "https://a"}}]}}]),
            ),
            vec![RemoteMedia],
        ),
        (blocks(json!([{"type": "container_upload", "file_id": "file_1"}])), vec![CodeExecution, Storage]),
        (blocks(json!([{"type": "server_tool_use", "name": "web_search"}])), vec![WebSearch]),
        (
            blocks(
                json!([{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"type": "web_fetch_20250910"}}}]),
            ),
            vec![WebFetch],
        ),
        (
            with(&base, json!({"system": [{"type": "image", "source": {"type": "url", "url": "https://a"}}]})),
            vec![RemoteMedia],
        ),
    ] {
        needs(dialect, path, &body, &wanted);
        needs(dialect, "/v1/messages/count_tokens", &body, &wanted);
    }
    for body in [
        tools(json!([{"type": "teleport_20270101", "name": "t"}])),
        tools(json!([{"type": "", "name": "t"}])),
        tools(json!([{"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5"}])),
        blocks(json!([{"type": "hologram"}])),
        blocks(json!([{"type": "image", "source": {"type": "satellite"}}])),
        with(&base, json!({"fallbacks": "default"})),
        with(&base, json!({"web_access": 1})),
        with(&base, json!({"billing_policy": {"type": "billing_policy"}})),
        with(&base, json!({"webhook": "https://a"})),
    ] {
        is_unknown(dialect, path, &body);
    }
}

#[test]
fn gemini() {
    let (dialect, path) = (Dialect::Gemini, "/v1beta/models/{model}:generateContent");
    let base = json!({"contents": [{"role": "user", "parts": [{"text": "https://a"}]}]});
    let parts = |parts: Value| json!({"contents": [{"parts": parts}]});
    let tools = |tools: Value| with(&base, json!({"tools": tools}));
    for body in [
        base.clone(),
        with(
            &base,
            json!({"generationConfig": {"temperature": 1, "responseSchema": {"type": "OBJECT"}}, "safetySettings": []}),
        ),
        with(
            &base,
            json!({"system_instruction": {"parts": [{"text": "x"}]}, "generation_config": {"max_output_tokens": 5}}),
        ),
        tools(json!([{"functionDeclarations": [{"name": "google_search"}]}])),
        tools(json!([{"function_declarations": [{"name": "f"}]}])),
        parts(json!([{"inlineData": {"mimeType": "image/png", "data": "AA"}}, {"inline_data": {"data": "AA"}}])),
        parts(
            json!([{"functionResponse": {"name": "f", "response": {"fileData": "https://a"}}}, {"text": "x", "thoughtSignature": "s"}]),
        ),
    ] {
        passes(dialect, path, &body);
    }
    for (body, wanted) in [
        (tools(json!([{"googleSearch": {}}])), vec![WebSearch]),
        (tools(json!([{"google_search": {}}])), vec![WebSearch]),
        (tools(json!({"google_search": {}})), vec![WebSearch]),
        (tools(json!([{"function_declarations": []}, {"googleSearchRetrieval": {}}])), vec![WebSearch]),
        (tools(json!([{"google_maps": {}}])), vec![WebSearch]),
        (tools(json!([{"url_context": {}}])), vec![WebFetch]),
        (tools(json!([{"codeExecution": {}}])), vec![CodeExecution]),
        (tools(json!([{"computer_use": {"environment": "ENVIRONMENT_BROWSER"}}])), vec![ComputerUse]),
        (tools(json!([{"mcpServers": [{"name": "a"}]}])), vec![RemoteMcp]),
        (tools(json!([{"fileSearch": {"fileSearchStoreNames": ["a"]}}])), vec![Storage]),
        (tools(json!([{"retrieval": {"externalApi": {"endpoint": "https://a"}}}])), vec![Storage, WebFetch]),
        (parts(json!([{"fileData": {"fileUri": "https://youtube.com/a"}}])), vec![RemoteMedia]),
        (parts(json!([{"file_data": {"file_uri": "gs://a/b"}}])), vec![RemoteMedia]),
        (parts(json!({"file_data": {"file_uri": "gs://a/b"}})), vec![RemoteMedia]),
        (
            parts(json!([{"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/a"}}])),
            vec![Storage],
        ),
        (
            parts(
                json!([{"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/a", "file_uri": "https://a"}}]),
            ),
            vec![RemoteMedia],
        ),
        (
            parts(json!([{"functionResponse": {"parts": [{"file_data": {"file_uri": "https://a"}}]}}])),
            vec![RemoteMedia],
        ),
        (parts(json!([{"executableCode": {"code": "x"}}])), vec![CodeExecution]),
        (parts(json!([{"toolCall": {"toolType": "URL_CONTEXT"}}])), vec![WebFetch]),
        (
            with(&base, json!({"systemInstruction": {"parts": [{"fileData": {"fileUri": "https://a"}}]}})),
            vec![RemoteMedia],
        ),
        (with(&base, json!({"cachedContent": "cachedContents/1"})), vec![Storage]),
        (with(&base, json!({"cached_content": "cachedContents/1"})), vec![Storage]),
        (with(&base, json!({"store": true})), vec![Storage]),
    ] {
        needs(dialect, path, &body, &wanted);
        needs(dialect, "/v1beta/models/{model}:streamGenerateContent", &body, &wanted);
        let counted = json!({"generateContentRequest": with(&body, json!({"model": "models/m"}))});
        needs(dialect, "/v1beta/models/{model}:countTokens", &counted, &wanted);
    }
    for body in [
        tools(json!([{"teleport": {}}])),
        parts(json!([{"hologram": {}}])),
        parts(json!([{"toolCall": {"id": "1"}}])),
        with(&base, json!({"generationOutputConfig": {"outputUriPrefix": "gs://a"}})),
        with(&base, json!({"generationConfig": {"routing_config": {"autoMode": {}}}})),
        with(&base, json!({"webAccess": 1})),
        with(&base, json!({"webhook": "https://a"})),
    ] {
        is_unknown(dialect, path, &body);
    }
}

#[test]
fn azure_openai() {
    let (dialect, path) = (Dialect::AzureOpenAi, "/openai/deployments/{model}/chat/completions");
    let base = json!({"messages": [{"role": "user", "content": "hi"}]});
    passes(dialect, path, &base);
    needs(
        dialect,
        path,
        &with(&base, json!({"data_sources": [{"type": "azure_search", "parameters": {"endpoint": "https://a"}}]})),
        &[Storage, WebFetch],
    );
    let image =
        json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a"}}]}]});
    needs(dialect, path, &image, &[RemoteMedia]);
    is_unknown(dialect, path, &with(&base, json!({"enhancements": {"grounding": {"enabled": true}}})));
    let responses = json!({"model": "d", "input": "hi", "tools": [{"type": "mcp", "server_url": "https://a"}]});
    needs(dialect, "/openai/responses", &responses, &[RemoteMcp]);
}

#[test]
fn openrouter() {
    let (dialect, path) = (Dialect::OpenRouter, "/api/v1/chat/completions");
    let base = json!({"model": "openai/gpt-5", "messages": [{"role": "user", "content": "hi"}]});
    for body in [
        base.clone(),
        with(
            &base,
            json!({"provider": {"order": ["openai"], "allow_fallbacks": false}, "reasoning": {"effort": "high"}, "usage": {"include": true}}),
        ),
        with(
            &base,
            json!({"models": ["openai/gpt-5", "openai/gpt-5-mini"], "route": "fallback", "transforms": ["middle-out"]}),
        ),
        with(&base, json!({"plugins": [{"id": "response-healing"}, {"id": "web", "enabled": false}]})),
        with(
            &base,
            json!({"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "openrouter:datetime"}]}),
        ),
    ] {
        passes(dialect, path, &body);
    }
    for (body, wanted) in [
        (with(&base, json!({"model": "openai/gpt-5:online"})), WebSearch),
        (with(&base, json!({"models": ["openai/gpt-5", "x/y:online"]})), WebSearch),
        (with(&base, json!({"model": "perplexity/sonar"})), WebSearch),
        (with(&base, json!({"plugins": [{"id": "web"}]})), WebSearch),
        (with(&base, json!({"plugins": [{"id": "web-fetch"}]})), WebFetch),
        (with(&base, json!({"tools": [{"type": "openrouter:web_search"}]})), WebSearch),
        (with(&base, json!({"tools": [{"type": "openrouter:web_fetch"}]})), WebFetch),
        (with(&base, json!({"tools": [{"type": "openrouter:bash"}]})), CodeExecution),
        (with(&base, json!({"web_search_options": {}})), WebSearch),
        (
            with(
                &base,
                json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": "https://a/b.pdf"}}]}]}),
            ),
            RemoteMedia,
        ),
    ] {
        needs(dialect, path, &body, &[wanted]);
    }
    for body in [
        with(&base, json!({"model": "openai/gpt-5@preset/mine"})),
        with(&base, json!({"preset": "mine"})),
        with(&base, json!({"plugins": [{"id": "fusion"}]})),
        with(&base, json!({"tools": [{"type": "openrouter:teleport"}]})),
    ] {
        is_unknown(dialect, path, &body);
    }
}

#[test]
fn an_endpoint_that_nobody_knows_needs_every_grant() {
    for (dialect, path) in [
        (Dialect::OpenAi, "/v1/files"),
        (Dialect::OpenAi, "/v1/batches"),
        (Dialect::OpenAi, "/v1/vector_stores"),
        (Dialect::OpenAi, "/v1/responses/{model}/cancel"),
        (Dialect::Anthropic, "/v1/messages/batches"),
        (Dialect::Anthropic, "/v1/files"),
        (Dialect::Gemini, "/v1beta/cachedContents"),
        (Dialect::Gemini, "/v1beta/models/{model}:batchGenerateContent"),
        (Dialect::AzureOpenAi, "/openai/files"),
        (Dialect::OpenRouter, "/api/v1/messages"),
    ] {
        needs(dialect, path, &json!({}), &EVERY);
        let none = grants::check(dialect, &route(path), path, None, &[]);
        assert_eq!(none.unwrap_err().code, "crashlab_not_known", "{path}, without a body");
    }
}

#[test]
fn a_refusal_says_nothing_of_the_prompt_and_stays_short() {
    let long = "x".repeat(10_000);
    let body =
        json!({"model": "gpt-5", "input": "my secret plan", "tools": [{"type": format!("web_search{long}\u{1b}[2J")}]});
    let denied = judge(Dialect::OpenAi, "/v1/responses", &body, &[]).unwrap_err();
    assert!(denied.message.len() < 400 && !denied.message.contains("plan"), "{}", denied.message);
    assert!(!denied.message.contains('\u{1b}'));
}
