"""What agents that try the SDKs share: where these are, what they ask, what each call came to."""
import json
import sys
import time

sys.path.insert(0, "/target/sdks")

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "refund", "parameters": {"type": "object", "properties": {"order": {"type": "string"}}}}}
results = {}


def call(name):
    """Calls it, and keeps what it came to; an exception is what it came to, too."""
    def run(work):
        begun = time.monotonic()
        try:
            results[name] = work()
        except Exception as error:
            body = getattr(error, "body", None) or getattr(error, "details", None)
            results[name] = {"error": type(error).__name__, "status": getattr(error, "status_code", getattr(error, "code", None)), "body": body, "text": str(error)[:600]}
        print(name, round(time.monotonic() - begun, 2), file=sys.stderr)
    return run


def openai_streams(client):
    """With usage only where it is asked for."""
    ask = {"model": "gpt-5-mini", "messages": USER, "stream": True}

    @call("openai stream")
    def _():
        # An agent that indexes into each chunk's choices.
        chunks = [(chunk.choices[0].delta.content, "usage" in chunk.model_fields_set) for chunk in client.chat.completions.create(**ask)]
        return ["".join(text or "" for text, _ in chunks), any(has for _, has in chunks)]

    @call("openai stream with usage")
    def _():
        last = list(client.chat.completions.create(**ask, stream_options={"include_usage": True}))[-1]
        return [len(last.choices), last.usage.total_tokens]


def tell():
    print(json.dumps({"ok": True, "results": results}, default=str))
