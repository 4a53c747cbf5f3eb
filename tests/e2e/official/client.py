"""Drives the official OpenAI or Anthropic client: one request a line, its outcome as one line of JSON.

Usage: client.py {openai|anthropic} BASE_URL
A line: {"key": "sk-…", "stream": true, "words": 3, "retries": 0}, or, with OpenAI's, {"key": "sk-…", "events": 3}
"""

import importlib
import json
import logging
import sys

PROVIDER, BASE_URL = sys.argv[1:]
# Seconds on a busy machine, so before the first line is asked for.
importlib.import_module(PROVIDER)
DELAYS = []


class Delays(logging.Handler):
    """Notes how long the client says it will wait before it tries again."""

    def emit(self, record):
        if str(record.msg).startswith("Retrying request"):
            DELAYS.append(next(value for value in record.args if isinstance(value, float)))


def openai(ask):
    import openai

    client = openai.OpenAI(base_url=f"{BASE_URL}/v1", api_key=ask["key"], max_retries=ask["retries"], timeout=60)
    question = {"model": "demo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": ask["words"]}
    if not ask["stream"]:
        answer = client.chat.completions.create(**question)
        return answer.choices[0].message.content, answer.usage.completion_tokens, answer.choices[0].finish_reason
    text, words, reason = "", None, None
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(**question, stream=True, stream_options=options):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
        if chunk.usage:
            words = chunk.usage.completion_tokens
    return text, words, reason


def realtime(ask):
    """Sends events over a WebSocket to a provider that says them back."""
    import openai
    from websockets.exceptions import InvalidStatus

    client = openai.OpenAI(base_url=f"{BASE_URL}/v1", api_key=ask["key"], timeout=60)
    heard = []
    try:
        with client.realtime.connect(model="demo") as connection:
            for number in range(ask["events"]):
                connection.send({"type": "input_audio_buffer.append", "audio": f"piece{number}"})
                heard.append(connection.recv().audio)
    except InvalidStatus as refused:
        return {"status": refused.response.status_code, "headers": dict(refused.response.headers)}
    return {"heard": heard}


def anthropic(ask):
    import anthropic

    client = anthropic.Anthropic(base_url=BASE_URL, api_key=ask["key"], max_retries=ask["retries"], timeout=60)
    question = {"model": "demo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": ask["words"]}
    if not ask["stream"]:
        message = client.messages.create(**question)
        text = message.content[0].text
    else:
        with client.messages.stream(**question) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
    return text, message.usage.output_tokens, message.stop_reason


def outcome(ask):
    if "events" in ask:
        return realtime(ask)
    DELAYS.clear()
    try:
        text, words, reason = {"openai": openai, "anthropic": anthropic}[PROVIDER](ask)
        return {"text": text, "words": words, "reason": reason, "delays": DELAYS}
    except Exception as error:
        response = getattr(error, "response", None)
        return {
            "raised": [kind.__name__ for kind in type(error).__mro__],
            "status": getattr(error, "status_code", None),
            "headers": dict(response.headers) if response is not None else {},
            "body": response.json() if response is not None else str(error),
            "delays": DELAYS,
        }


logger = logging.getLogger(PROVIDER)
logger.setLevel(logging.INFO)
logger.addHandler(Delays())
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(outcome(json.loads(line))), flush=True)
