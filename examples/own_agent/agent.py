"""An agent as it may lie on your disk: it plays a guessing game with the model behind an OpenAI client.

It knows nothing of longloop. The client finds its model at OPENAI_BASE_URL, and the script its task in LONGLOOP_TASK.
"""

import json
import os
import re

from openai import OpenAI

task = json.loads(os.environ["LONGLOOP_TASK"])
client = OpenAI()
messages = [{"role": "user", "content": f"guess 1-{task['highest']}"}]
for _ in range(task["tries"]):
    reply = client.chat.completions.create(model="gpt-4o", messages=messages)
    said = reply.choices[0].message.content
    found = re.search(r"\d+", said)
    if found and int(found[0]) == task["number"]:
        break
    answer = "number?" if not found else "higher" if int(found[0]) < task["number"] else "lower"
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": answer}]
