"""A guessing game with OpenAI's client: the model calls a tool, the script runs it and tells what it said."""

import json
import os

from openai import OpenAI

task = json.loads(os.environ["LONGLOOP_TASK"])
number = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
function = {"name": "guess", "description": "Guess the number.", "parameters": number}


def guess(number: int) -> str:
    return "right" if number == task["number"] else "higher" if number < task["number"] else "lower"


client = OpenAI()
messages = [{"role": "user", "content": f"guess 1-{task['highest']}"}]
for _ in range(task["tries"]):
    reply = client.chat.completions.create(
        model="gpt-4o", messages=messages, tools=[{"type": "function", "function": function}]
    )
    message = reply.choices[0].message
    messages.append(message)
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        try:
            answer = guess(**json.loads(call.function.arguments))
        except TypeError as error:  # the model got an argument wrong
            answer = str(error)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})
