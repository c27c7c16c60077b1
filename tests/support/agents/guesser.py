"""An agent that knows nothing of longloop: it plays the guessing game with whatever model its API has.

It needs the standard library alone. Its messages are those of `longloop.envs.guess`, so that both ways to play can be
compared, id by id.
"""

import http.client
import json
import os
import re
from urllib.parse import urlsplit

URL = urlsplit(os.environ["OPENAI_BASE_URL"])
TASK = json.loads(os.environ["LONGLOOP_TASK"])


def chat(messages, stream):
    connection = http.client.HTTPConnection(URL.hostname, URL.port)
    body = {"model": "policy", "messages": messages, "temperature": 0.3, "stream": stream}
    head = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    connection.request("POST", f"{URL.path}/chat/completions", json.dumps(body), head)
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    if not stream:
        return json.load(reply)["choices"][0]["message"]["content"]
    said = ""
    for line in reply:
        if line.startswith(b"data: {"):
            said += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
    return said


messages, right = [{"role": "user", "content": f"guess 1-{TASK['highest']}"}], False
for turn in range(TASK["tries"]):
    said = chat(messages, stream=turn % 2 == 1)
    found = re.search(r"\d+", said)
    right = bool(found) and int(found[0][:9]) == TASK["number"]
    if right:
        break
    answer = "number?" if not found else "higher" if int(found[0][:9]) < TASK["number"] else "lower"
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": answer}]
with open(os.environ["LONGLOOP_OUTCOME"], "w") as file:
    json.dump({"reward": float(right), "success": right}, file)
