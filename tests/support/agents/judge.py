"""A judge that is a program: it reports with its own key. Standard library."""

import json
import os
import sys
import urllib.request

task = json.loads(os.environ["LONGLOOP_TASK"])
if task["mode"] == "no verdict":
    print("the judge does not know", file=sys.stderr)
    sys.exit(task.get("code", 0))
with open(os.environ["LONGLOOP_CONVERSATIONS"]) as file:
    said = [[message["content"] for message in one] for one in json.load(file)]
verdict = {"reward": 0.75, "info": {"said": said, "secret": task.get("judge"), "files": sorted(os.listdir())}}
head = {"authorization": f"Bearer {os.environ['LONGLOOP_OUTCOME_KEY']}"}
urllib.request.urlopen(urllib.request.Request(os.environ["LONGLOOP_OUTCOME_URL"], json.dumps(verdict).encode(), head))
