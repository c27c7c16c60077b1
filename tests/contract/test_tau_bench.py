"""tau-bench's adapter, with a stand-in for the package and an endpoint that plays the customer. The real package, which
is not on any index, was not at hand."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longloop import build, config
from longloop.envs.calls import called
from longloop.envs.play import Played, Script, play
from longloop.envs.tau_bench import TauBench
from longloop.types import UserError
from tests.support.endpoints import Endpoint, answering, refusal
from tests.support.processes import ROOT

CLONE = ROOT / "tests" / "support" / "tau"


def customer(body: dict[str, Any]) -> str:
    """Says what it wants until it has heard a price, or is told that all is done."""
    wish, heard = body["messages"][0]["content"], body["messages"][-1]["content"]
    return "###STOP###" if "30" in heard or "done" in heard else f"I am the customer. {wish}"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("TAU_USER_KEY", "secret")
    with answering(customer) as found:
        yield found


def world(url: str, **options: object) -> build.Environments:
    named = {"name": "tau_bench", "folder": str(CLONE), "user_url": url, "user_model": "someone"}
    return build.world(
        config.Config.model_validate({"env": {"isolation": "process", "workers": 1, **named, **options}})
    )


def played(place: build.Environments, *said: str, split: str = "train", number: int = 0) -> Played:
    return asyncio.run(play(place.make(), place.tasks(split)[number], Script(list(said))))


def test_a_customer_is_served_and_the_package_pays(endpoint: Endpoint) -> None:
    place = world(endpoint.url)
    assert [len(place.tasks(split)) for split in ("train", "dev", "test")] == [2, 1, 1]
    look, cancel = called("look", {"order": 1}), called("cancel", {"order": 1})
    good = played(place, look, cancel, "Order 1 is canceled. It was 30 euros.")
    assert good.outcome.reward == 1.0 and good.outcome.success
    rules, wish, *_ = good.messages
    assert (rules.role, rules.content) == ("system", "Serve the customer.")
    assert (wish.role, wish.content) == ("user", "I am the customer. You want: cancel order 1, and know what it cost")
    assert [message.content for message in good.messages if message.role == "tool"] == ["30 euros", "30 euros"]
    asked = endpoint.asked[-1]
    assert asked["model"] == "someone" and asked["messages"][-1]["content"].startswith("Order 1 is canceled")
    assert endpoint.headers[-1]["authorization"] == "Bearer secret" and endpoint.headers[-1]["path"].endswith(
        "/chat/completions"
    )
    untold = played(place, cancel, "All is done.")
    assert untold.outcome.reward == 0.0 and not untold.outcome.success, "the price was to be told"
    assert played(place, "All is done.", number=1).outcome.success, "and the next attempt begins anew"
    assert played(place, cancel, "All is done.", number=1).outcome.reward == 0.0


def test_what_goes_wrong_is_told_to_the_agent(endpoint: Endpoint) -> None:
    said = called("fly", {}), called("respond", {}), called("look", {"order": 7}), called("give_up", {}), "done"
    found = played(world(endpoint.url), *said)
    tools = [message.content for message in found.messages if message.role == "tool"]
    assert tools == ["Unknown action fly", "Unknown action respond", "Error: there is no 7"]
    assert found.outcome.reward == 0.0 and found.messages[-1].role == "assistant", "handing over ends it"
    assert played(world(endpoint.url), called("look", {"order": 1})).outcome.reward == 0.0, "cut short"


def test_a_customer_who_does_not_answer_costs_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering([refusal(401, "who are you?")]) as endpoint:
        place = world(endpoint.url)
        task = place.tasks("train")[0]
        with pytest.raises(Exception, match=r"customer's endpoint .*/chat/completions refused: 401 .*who are you"):
            asyncio.run(play(place.make(), task, Script([])))
    assert len(endpoint.asked) == 1, "a key does not become right"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"name the clone .*and who plays the customer"):
        world("", folder="")
    with pytest.raises(UserError, match="`user_key` is one of TAU_USER_KEY, OPENAI_API_KEY"):
        world("http://x", user_key="HOME")
    with pytest.raises(UserError, match="is no clone of tau-bench"):
        world("http://x", folder=str(tmp_path)).tasks("train")
    airline = TauBench.Options(folder="x", domain="airline", user_url="http://x", user_model="m")
    assert TauBench.tasks("train", airline) == []
