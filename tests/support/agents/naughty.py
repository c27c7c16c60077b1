"""An agent that does what its task says, good or bad. Standard library."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

URL = urlsplit(os.environ["OPENAI_BASE_URL"])
KEY = os.environ["OPENAI_API_KEY"]
TASK = json.loads(os.environ["LONGLOOP_TASK"])


def post(path, body, key=KEY):
    connection = http.client.HTTPConnection(URL.hostname, URL.port)
    connection.request("POST", path, json.dumps(body), {"authorization": f"Bearer {key}"})
    reply = connection.getresponse()
    found = json.load(reply)
    return reply.status, found


def ask(text="go", key=KEY, **more):
    status, reply = post(f"{URL.path}/chat/completions", {"messages": [{"role": "user", "content": text}], **more}, key)
    return reply["choices"][0]["message"] if status == 200 else status


def report(reward):
    if "LONGLOOP_OUTCOME" in os.environ:
        with open(os.environ["LONGLOOP_OUTCOME"], "w") as file:
            json.dump({"reward": reward, "info": {"says": "the agent"}}, file)


def note(name, value):
    """Leaves something in the working folder, for a judge to see."""
    with open(name, "w") as file:
        json.dump(value, file)


mode = TASK["mode"]
if mode == "end at once":
    print("no model needed", file=sys.stderr)
    sys.exit()
note("seen.json", {"task": TASK, "variables": sorted(os.environ), "files": sorted(os.listdir())})
ask()
if mode == "die":
    print("a traceback", file=sys.stderr)
    print("ValueError: the model said nonsense", file=sys.stderr)
    sys.exit(3)
if mode == "kill itself":
    os.kill(os.getpid(), 9)
if mode == "hang":
    time.sleep(3600)
if mode == "leave a child":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    note("child.json", child.pid)
if mode == "flood":
    for _ in range(300):
        print("x" * 100_000)
    threads = [threading.Thread(target=ask, args=(f"call {n}",)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
if mode == "forge":
    note("statuses.json", [ask(key="0" * 32), ask(key=""), ask(n=2)])
if mode == "ask meanwhile":
    thinks = threading.Thread(target=ask, args=("think",))
    thinks.start()
    socket.create_connection(("127.0.0.1", TASK["thinking"])).recv(1)
    note("statuses.json", [ask(key="0" * 32)])
    socket.create_connection(("127.0.0.1", TASK["thinking"])).recv(1)
    thinks.join()
if mode == "go on and on":
    note("statuses.json", [status for status in (ask(f"call {n}") for n in range(4)) if isinstance(status, int)])
    time.sleep(3600)
if mode == "pay itself":
    paid = {"reward": 1000.0, "success": True}
    statuses = [post("/outcome", paid)[0], post(f"/{KEY}/outcome", paid)[0]]
    note("statuses.json", statuses)
    with open("../outcome.json", "w") as file:
        json.dump(paid, file)
if mode == "nonsense":
    with open(os.environ["LONGLOOP_OUTCOME"], "w") as file:
        file.write(TASK["report"])
    sys.exit()
if mode == "say nothing":
    sys.exit()
report(1.0)
