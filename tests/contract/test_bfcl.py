"""BFCL's multi-turn tasks, the real ones, in their own virtualenv."""

import asyncio
import json
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from longloop import build, config
from longloop.diagnose.trial import difference, scores, violations
from longloop.envs import bfcl
from longloop.envs.calls import called
from longloop.envs.play import Script, play
from longloop.types import Step, UserError


def world(**options: object) -> build.Environments:
    return build.world(config.Config.model_validate({"env": {"name": "bfcl", **options}}))


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        place = world()
        asyncio.run(play(place.make(), place.tasks("dev")[0], Script([])))
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def place() -> build.Environments:
    return world()


def task_of(place: build.Environments, id: str):
    return next(task for split in ("train", "dev", "test") for task in place.tasks(split) if task.id == id)


def test_conversations_stay_in_one_split(place):
    tasks = {split: place.tasks(split) for split in ("train", "dev", "test")}
    assert {split: len(some) for split, some in tasks.items()} == {"train": 480, "dev": 160, "test": 160}
    assert {*Counter(task.scenario for some in tasks.values() for task in some).values()} == {4}
    numbers = {split: {task.scenario for task in some} for split, some in tasks.items()}
    assert not numbers["train"] & numbers["dev"] and not numbers["test"] & (numbers["train"] | numbers["dev"])


def test_experts_do_all_that_can_be_done_and_words_do_nothing(place):
    """A tenth of the tasks; docs/environments/bfcl.md has all 800."""
    some = [task for split in ("train", "dev", "test") for task in place.tasks(split)][::10]
    found = asyncio.run(scores(place.guarded(60), some))
    assert len(some) == 80 and found["expert"].success == 1.0
    assert found["nothing"].reward == found["words"].reward == 0.0


def test_one_task_has_a_reference_that_calls_what_is_held_back(place):
    task = task_of(place, "multi_turn_miss_func_49")
    env = place.make()
    failed = asyncio.run(play(env, task, env.expert(task), max_turns=100))
    assert not failed.outcome.success and failed.outcome.info["error"] == "multi_turn:execution_response_mismatch"
    assert "Error: there is no function 'tail'" in [message.content for message in failed.messages]


HAND = [  # multi_turn_base_0, by hand: other calls than the reference's with the same effect count as well
    called("cd", {"folder": "document"}) + called("mkdir", {"dir_name": "temp"}).join("\n\n"),
    called("ls", {}),
    called("mv", {"source": "final_report.pdf", "destination": "temp"}),
    "It is moved.",
    called("cd", {"folder": "temp"}),
    called("grep", {"file_name": "final_report.pdf", "pattern": "budget analysis"}),
    "Found.",
    called("sort", {"file_name": "final_report.pdf"}),
    "Sorted.",
    called("cd", {"folder": ".."}),
    called("mv", {"source": "previous_report.pdf", "destination": "temp"}),
    called("cd", {"folder": "temp"}),
    called("diff", {"file_name1": "final_report.pdf", "file_name2": "previous_report.pdf"}),
    "Compared.",
]


def test_a_conversation_by_hand(place):
    task = task_of(place, "multi_turn_base_0")
    done = asyncio.run(play(place.make(), task, Script(HAND)))
    assert done.outcome.success and done.outcome.reward == 1.0 and done.turns == len(HAND)
    requests = [message.content for message in done.messages if message.role == "user"]
    assert len(requests) == 4 and requests[1].startswith("Perform a detailed search")
    answers = [message for message in done.messages if message.role == "tool"]
    assert json.loads(answers[2].content) == {
        "current_directory_content": ["final_report.pdf", "previous_report.pdf", "temp"]
    }
    without = asyncio.run(play(place.make(), task, Script([*HAND[:7], "I sorted it.", *HAND[9:]])))
    assert not without.outcome.success
    more = asyncio.run(
        play(place.make(), task, Script([*HAND[:-1], called("rm", {"file_name": "final_report.pdf"}), "."]))
    )
    assert more.outcome.info["error"] == "multi_turn:instance_state_mismatch"


def test_calls_that_cannot_be_made_are_answered(place):
    task = task_of(place, "multi_turn_base_0")
    evil = {"x=__import__('os').system('true')#": 1}
    odd = [called("nothing", {}), called("ls", evil), called("ls", {"b": 1}), called("cd", {"folder": "'); exit('"})]
    answers = [m.content for m in asyncio.run(play(place.make(), task, Script(odd))).messages if m.role == "tool"]
    assert answers[0] == "Error: there is no function 'nothing'"
    assert answers[1].startswith("Error: ls has no parameter") and answers[2].startswith("Error during execution: ")
    assert "error" in answers[3] and "exit" in answers[3]


def test_functions_that_come_later(place):
    task = task_of(place, "multi_turn_miss_func_0")  # `sort` is held back until the fourth request
    env = place.make()

    async def opened() -> Step:
        await env.ready()
        step = Step.of(await env.start(task))
        await env.finish()
        return step

    tools = {tool["function"]["name"]: tool["function"] for tool in asyncio.run(opened()).tools}
    assert "sort" not in tools and tools["cat"]["parameters"]["type"] == "object"
    ended = asyncio.run(play(place.make(), task, Script([".", called("sort", {}), ".", "."])))
    heard = [message.content for message in ended.messages[2:] if message.role in ("tool", "user")]
    assert heard[1] == "Error: there is no function 'sort'"
    assert '{"name": "sort"' in heard[3] and "functions" in heard[3]


@pytest.mark.parametrize("id", ["multi_turn_base_0", "multi_turn_long_context_150"])
def test_the_same_calls_meet_the_same_answers(id):
    """In a single new worker: the package keeps services in its module, which the second attempt must not meet."""
    place = world(workers=1)
    task = task_of(place, id)
    assert asyncio.run(difference(place.guarded(60), task)) == ""
    assert asyncio.run(violations(place.guarded(60), task)) == []


def test_categories_can_be_chosen():
    assert {task.data["category"] for task in world(categories=["base"]).tasks("train")} == {"base"}
    with pytest.raises(UserError, match="no category 'single'"):
        world(categories=["single"])


def test_data_may_hold_any_text(monkeypatch, tmp_path):
    """Some characters end a line for Python, though not in JSON; and the files are UTF-8, whatever the locale says."""
    package = SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    entries = [{"id": "a", "said": "one\u2028two\u2029three\x85four é"}, {"id": "b"}]
    (tmp_path / "data").mkdir()
    lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    (tmp_path / "data" / "any.json").write_bytes(lines.encode())
    monkeypatch.setitem(sys.modules, "bfcl_eval", package)
    monkeypatch.setattr("io.text_encoding", lambda encoding, level=2: encoding or "latin-1")
    assert list(bfcl._lines.__wrapped__("any.json").values()) == entries
