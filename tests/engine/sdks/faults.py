"""Each provider's SDK under faults: an injected answer, then the one that the real provider gives (or none, where nothing
can be scripted). Prints what both came to."""
import json
import os
import sys

sys.path.insert(0, "/target/sdks")

import anthropic
import openai
from google import genai

USER = [{"role": "user", "content": "hi"}]
OFF = {"max_retries": 0, "timeout": 300}
results = []


def came_to(work):
    try:
        return {"value": work()}
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind not in (object, Exception, BaseException)]
        body = getattr(error, "body", None) or getattr(error, "details", None)
        return {
            "error": kinds, "status": getattr(error, "status_code", None), "code": getattr(error, "code", None),
            "type": getattr(error, "type", None), "request_id": getattr(error, "request_id", None), "keys": keys(body),
        }


def keys(value):
    """The form of a body, without its words."""
    if isinstance(value, dict):
        return {key: keys(part) for key, part in value.items()}
    return [keys(part) for part in value] if isinstance(value, list) else type(value).__name__


def chat(client, model):
    def whole():
        answer = client.chat.completions.create(model=model, messages=USER)
        if isinstance(answer, str):
            return "text"
        choice = answer.choices[0]
        return [choice.finish_reason, choice.message.content, answer.usage.total_tokens]
    return whole


def chat_stream(client, model):
    def whole():
        chunks = list(client.chat.completions.create(model=model, messages=USER, stream=True))
        return [chunk.choices[0].finish_reason for chunk in chunks][-1:]
    return whole


def response(client):
    def whole():
        answer = client.responses.create(model="gpt-5-mini", input="hi")
        if isinstance(answer, str):
            return "text"
        reason = answer.incomplete_details and answer.incomplete_details.reason
        return [answer.status, reason, answer.output_text, answer.usage.total_tokens]
    return whole


def response_stream(client):
    def whole():
        with client.responses.stream(model="gpt-5-mini", input="hi") as stream:
            types = [event.type for event in stream]
            return [types[-1] if types else None, stream.get_final_response().status]
    return whole


def message(client):
    def whole():
        answer = client.messages.create(model="claude-sonnet-5", max_tokens=100, messages=USER)
        return "text" if isinstance(answer, str) else answer.content[0].text
    return whole


def message_stream(client):
    def whole():
        with client.messages.stream(model="claude-sonnet-5", max_tokens=100, messages=USER) as stream:
            return ["".join(stream.text_stream), stream.get_final_message().stop_reason]
    return whole


def content(client):
    def whole():
        answer = client.models.generate_content(model="gemini-2.5-flash", contents="hi")
        feedback = answer.prompt_feedback and answer.prompt_feedback.block_reason
        return [answer.text, feedback, answer.usage_metadata and answer.usage_metadata.total_token_count]
    return whole


def content_stream(client):
    def whole():
        chunks = list(client.models.generate_content_stream(model="gemini-2.5-flash", contents="hi"))
        return [[chunk.text, chunk.prompt_feedback and chunk.prompt_feedback.block_reason] for chunk in chunks]
    return whole


openai_client = openai.OpenAI(**OFF)
azure = openai.AzureOpenAI(api_version="2024-10-21", **OFF)
router = openai.OpenAI(api_key=os.environ["OPENROUTER_API_KEY"], base_url=os.environ["OPENROUTER_BASE_URL"], **OFF)
claude = anthropic.Anthropic(**OFF)
gemini = genai.Client()
WORKS = {
    "openai": {"chat": chat(openai_client, "gpt-5-mini"), "chat stream": chat_stream(openai_client, "gpt-5-mini"),
               "response": response(openai_client), "response stream": response_stream(openai_client)},
    "azure-openai": {"chat": chat(azure, "my-deployment"), "chat stream": chat_stream(azure, "my-deployment")},
    "openrouter": {"chat": chat(router, "openai/gpt-5"), "chat stream": chat_stream(router, "openai/gpt-5")},
    "anthropic": {"message": message(claude), "message stream": message_stream(claude)},
    "gemini": {"content": content(gemini), "content stream": content_stream(gemini)},
}

for step in json.load(sys.stdin)["steps"]:
    work = WORKS[step["gateway"]][step["call"]]
    result = {**step, "injected": came_to(work)}
    if step["real"]:
        result["provider"] = came_to(work)
    results.append(result)
    print(step, file=sys.stderr)
print(json.dumps({"ok": True, "results": results}, default=str))
