"""The examples run as they stand: the notebooks, and LOOP in one file."""

import json
import os
import re
from pathlib import Path
from typing import Any

from tests.support.processes import Program

EXAMPLES = Path(__file__).parents[2] / "examples"

AS_IPYTHON_DOES = """
import ast, asyncio, inspect, json, sys

async def cells(path):
    for cell in json.load(open(path))["cells"]:
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if inspect.iscoroutine(waiting := eval(code, globals())):
                await waiting

asyncio.run(cells(sys.argv[1]))
print(json.dumps({"before": before.reward, "after": after.reward, "status": again.status, "curve": curve}))
"""
"""Runs a notebook's cells in `__main__`, one after another, while an event loop is running. Jupyter is not needed."""


def run(file: Path, *arguments: str, folder: Path) -> list[str]:
    """The lines that a Python program printed."""
    program = Program(file, *arguments, folder=folder, variables=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)})
    code, printed = program.finish(280)
    assert code == 0, program.errors
    return printed.splitlines()


def executed(name: str, folder: Path, **shorter: int) -> tuple[dict[str, Any], list[str]]:
    """What became of a notebook's run, and what was printed. `shorter` has other values for numbers in its config."""
    text = (EXAMPLES / name).read_text()
    assert not [cell for cell in json.loads(text)["cells"] if cell.get("outputs")]
    for key, value in shorter.items():
        text, count = re.subn(rf'(\\"{key}\\": )\d+', rf"\g<1>{value}", text)
        assert count == 1, f"{key} is not in the config of {name}"
    (folder / name).write_text(text)
    (folder / "as_ipython_does.py").write_text(AS_IPYTHON_DOES)
    printed = run(folder / "as_ipython_does.py", name, folder=folder)
    return json.loads(printed[-1]), printed


def test_the_notebook_trains_measures_and_reads(tmp_path):
    found, printed = executed("from_python.ipynb", tmp_path)
    assert found["after"] > found["before"] + 0.5 and found["status"] == "finished"
    assert list(found["curve"]) == [str(step) for step in range(1, 41)]
    assert any(line.startswith("step 40/40  success ") for line in printed), "progress is printed"
    assert (tmp_path / "runs" / "repeat" / "logs" / "train.log").is_file()


def test_the_notebook_of_the_users_own_agent(tmp_path):
    """It states 12 steps, of which each starts 16 programs; that such an agent learns is in tests/contract."""
    found, printed = executed("own_agent.ipynb", tmp_path, steps=2, k=2, attempts=1)
    assert found["status"] == "finished" and list(found["curve"]) == ["1", "2"]
    assert any(re.fullmatch(r"[az] -> .?", line) for line in printed), "an attempt is shown"


def test_loop_in_one_file_reaches_what_it_states(tmp_path):
    file = EXAMPLES / "loop_in_one_file.py"
    text = file.read_text()
    assert len(text.splitlines()) <= 250 and not re.search(r"^\s*(from|import) longloop", text, re.MULTILINE)
    stated = re.search(r"at least (\d+)%", text)
    reached = re.fullmatch(r"success over the last 10 steps: ([\d.]+)%", run(file, folder=tmp_path)[-1])
    assert stated and reached and float(reached[1]) >= float(stated[1])
