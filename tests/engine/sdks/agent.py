"""Each provider's SDK as an agent uses it. Prints what each call came to; an exception is what it came to, too."""
import asyncio
import os

from common import USER, TOOL, call, openai_streams, tell

import anthropic
import openai
from google import genai

client = openai.OpenAI()


@call("openai chat")
def _():
    answer = client.chat.completions.create(model="gpt-5-mini", messages=USER)
    return [answer.choices[0].message.content, answer.usage.total_tokens]


@call("openai tools")
def _():
    answer = client.chat.completions.create(model="gpt-5-mini", messages=USER, tools=[TOOL])
    return answer.choices[0].message.tool_calls[0].function.name


openai_streams(client)


@call("openai async stream")
def _():
    async def main():
        async with openai.AsyncOpenAI() as client:
            async def one():
                stream = await client.chat.completions.create(model="gpt-5-mini", messages=USER, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return await asyncio.gather(*[one() for _ in range(5)])
    return asyncio.run(main())


@call("openai response")
def _():
    answer = client.responses.create(model="gpt-5-mini", input="hi")
    return [answer.output_text, answer.usage.total_tokens]


@call("openai response stream")
def _():
    with client.responses.stream(model="gpt-5-mini", input="hi") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        return ["".join(deltas), stream.get_final_response().usage.total_tokens]


@call("openai models")
def _():
    return [model.id for model in client.models.list()]


@call("openai retry")
def _():
    return client.chat.completions.create(model="gpt-5-mini", messages=[{"role": "user", "content": "busy at first"}]).choices[0].message.content


@call("openai cut")
def _():
    stream = client.chat.completions.create(model="gpt-5-mini", messages=[{"role": "user", "content": "cut"}], stream=True)
    return len(list(stream))


@call("openai other model")
def _():
    return client.chat.completions.create(model="o1", messages=USER)


@call("openai web search")
def _():
    return client.responses.create(model="gpt-5-mini", input="hi", tools=[{"type": "web_search"}])


@call("openai base without v1")
def _():
    base = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
    return openai.OpenAI(base_url=base).chat.completions.create(model="gpt-5-mini", messages=USER)


@call("openai bad token")
def _():
    return openai.OpenAI(api_key="crashlab_" + "0" * 64).chat.completions.create(model="gpt-5-mini", messages=USER)


claude = anthropic.Anthropic()
ASK = {"model": "claude-sonnet-5", "max_tokens": 100, "messages": USER}


@call("anthropic message")
def _():
    answer = claude.messages.create(**ASK)
    return [answer.content[0].text, answer.usage.output_tokens]


@call("anthropic stream")
def _():
    with claude.messages.stream(**ASK) as stream:
        return ["".join(stream.text_stream), stream.get_final_message().usage.output_tokens]


@call("anthropic async")
def _():
    async def main():
        async with anthropic.AsyncAnthropic() as claude:
            return (await claude.messages.create(**ASK)).content[0].text
    return asyncio.run(main())


@call("anthropic beta")
def _():
    return claude.beta.messages.create(**ASK, betas=["interleaved-thinking-2025-05-14"]).content[0].text


@call("anthropic count")
def _():
    return claude.messages.count_tokens(model="claude-sonnet-5", messages=USER).input_tokens


@call("anthropic models")
def _():
    return [model.id for model in claude.models.list()]


@call("anthropic error in a stream")
def _():
    with claude.messages.stream(**{**ASK, "messages": [{"role": "user", "content": "error"}]}) as stream:
        return "".join(stream.text_stream)


@call("anthropic web fetch")
def _():
    return claude.messages.create(**ASK, tools=[{"type": "web_fetch_20250910", "name": "web_fetch"}])


gemini = genai.Client()


@call("gemini content")
def _():
    answer = gemini.models.generate_content(model="gemini-2.5-flash", contents="hi")
    return [answer.text, answer.usage_metadata.total_token_count]


@call("gemini stream")
def _():
    return "".join(chunk.text or "" for chunk in gemini.models.generate_content_stream(model="gemini-2.5-flash", contents="hi"))


@call("gemini count")
def _():
    return gemini.models.count_tokens(model="gemini-2.5-flash", contents="hi").total_tokens


@call("gemini async stream")
def _():
    async def main():
        stream = await gemini.aio.models.generate_content_stream(model="gemini-2.5-flash", contents="hi")
        return "".join([chunk.text or "" async for chunk in stream])
    return asyncio.run(main())


@call("gemini file")
def _():
    part = genai.types.Part.from_uri(file_uri="https://example.com/a.png", mime_type="image/png")
    return gemini.models.generate_content(model="gemini-2.5-flash", contents=[part, "hi"])


@call("gemini search")
def _():
    return gemini.models.generate_content(model="gemini-2.5-flash", contents="hi", config={"tools": [{"google_search": {}}]})


azure = openai.AzureOpenAI(api_version="2024-10-21")


@call("azure chat")
def _():
    return azure.chat.completions.create(model="my-deployment", messages=USER).choices[0].message.content


@call("azure stream")
def _():
    stream = azure.chat.completions.create(model="my-deployment", messages=USER, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


@call("azure response")
def _():
    plain = openai.OpenAI(api_key=os.environ["AZURE_OPENAI_API_KEY"], base_url=os.environ["AZURE_OPENAI_ENDPOINT"] + "/openai/v1")
    return plain.responses.create(model="my-deployment", input="hi").output_text


@call("azure other deployment")
def _():
    return azure.chat.completions.create(model="another", messages=USER)


router = openai.OpenAI(api_key=os.environ["OPENROUTER_API_KEY"], base_url=os.environ["OPENROUTER_BASE_URL"])


@call("openrouter chat")
def _():
    return router.chat.completions.create(model="openai/gpt-5", messages=USER).choices[0].message.content


@call("openrouter stream")
def _():
    # Usage comes with every stream here, and the target sees it.
    stream = router.chat.completions.create(model="openai/gpt-5", messages=USER, stream=True, extra_body={"usage": {"include": True}})
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


@call("openrouter web plugin")
def _():
    return router.chat.completions.create(model="openai/gpt-5", messages=USER, extra_body={"plugins": [{"id": "web"}]})


@call("openrouter online")
def _():
    return router.chat.completions.create(model="openai/gpt-5:online", messages=USER)


tell()
