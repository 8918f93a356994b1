"""The openai and anthropic SDKs as an agent uses them. Prints what each call came to."""
import asyncio

from common import USER, TOOL, call, openai_streams, tell

import anthropic
import openai

# A busy machine takes its time; what is to be retried is said below.
client = openai.OpenAI(max_retries=0, timeout=120)
claude = anthropic.Anthropic(max_retries=0, timeout=120)


# What LiteLLM fails at comes first: a success on the same route must follow.
@call("openai rate limit")
def _():
    return client.chat.completions.create(model="gpt-5", messages=USER).id


@call("openai response stream")
def _():
    return [event.type for event in client.responses.create(model="gpt-5-mini", input="hi", stream=True)]


@call("openai chat")
def _():
    answer = client.chat.completions.create(model="gpt-5-mini", messages=USER)
    return [answer.choices[0].message.content, answer.usage.total_tokens > 0]


@call("openai tools")
def _():
    answer = client.chat.completions.create(model="gpt-5-nano", messages=USER, tools=[TOOL])
    return answer.choices[0].message.tool_calls[0].function.name


openai_streams(client)


@call("openai async streams")
def _():
    async def main():
        async with openai.AsyncOpenAI(max_retries=0, timeout=120) as client:
            async def one():
                stream = await client.chat.completions.create(model="gpt-5-mini", messages=USER, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return await asyncio.gather(*[one() for _ in range(3)])
    return asyncio.run(main())


@call("openai response")
def _():
    return client.responses.create(model="gpt-5-mini", input="hi").output_text


@call("openai models")
def _():
    return sorted(model.id for model in client.models.list())


@call("openai other model")
def _():
    return client.chat.completions.create(model="o1", messages=USER).id


@call("anthropic message")
def _():
    answer = claude.messages.create(model="claude-sonnet-5", max_tokens=100, messages=USER)
    return [answer.content[0].text, answer.usage.output_tokens > 0]


@call("anthropic stream")
def _():
    with claude.messages.stream(model="claude-sonnet-5", max_tokens=100, messages=USER) as stream:
        return "".join(stream.text_stream)


@call("anthropic async")
def _():
    async def main():
        async with anthropic.AsyncAnthropic(max_retries=0, timeout=120) as claude:
            answer = await claude.messages.create(model="claude-sonnet-5", max_tokens=100, messages=USER)
            return answer.content[0].text
    return asyncio.run(main())


@call("anthropic other model")
def _():
    return claude.messages.create(model="gpt-5-mini", max_tokens=100, messages=USER).id


tell()
