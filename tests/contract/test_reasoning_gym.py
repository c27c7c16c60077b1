"""Reasoning Gym, the real one, in its own virtualenv."""

import asyncio

import pytest

from longloop import build, config
from longloop.diagnose.trial import scores, violations
from longloop.envs.contract import NoExpert
from longloop.envs.play import Played, Script, play
from longloop.types import UserError


def world(**options: object) -> build.Environments:
    return build.world(config.Config.model_validate({"env": {"name": "reasoning_gym", **options}}))


SUMS = {"chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        world(count=1).tasks("dev")
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def sums() -> build.Environments:
    return world(datasets=SUMS, count=5)


def said(place: build.Environments, *words: str) -> Played:
    return asyncio.run(play(place.make(), place.tasks("train")[0], Script(words)))


def test_a_sum_is_scored_by_its_dataset(sums):
    """The answer is known by adding up what the question shows."""
    played = said(sums, "")
    assert [message.role for message in played.messages[:2]] == ["system", "user"]
    question = played.messages[1].content
    first, sign, second = question.partition(":")[2].split("=")[0].split()
    total = int(first) + (int(second) if sign == "+" else -int(second))
    for right in (f"{total}", f"<answer> {total} </answer>", f"<answer>0</answer> no, <answer>{total}</answer>"):
        outcome = said(sums, right).outcome
        assert (outcome.reward, outcome.success, outcome.info["key"]) == (1.0, True, str(total))
    partly = said(sums, f"It is {total}").outcome
    assert 0 < partly.reward < 1 and not partly.success, "the dataset pays a little for an answer with words around it"
    assert said(sums, f"{total + 1}").outcome.reward == 0.0 == played.outcome.reward


def test_each_split_has_questions_of_its_own_and_a_task_is_always_the_same(sums):
    def questions(place: build.Environments, split: str) -> list[str]:
        return [asyncio.run(play(place.make(), task, Script([]))).messages[1].content for task in place.tasks(split)]

    one, another = (world(datasets={"isomorphic_strings": {}}, count=5) for _ in range(2))
    train = questions(one, "train")
    assert train == questions(another, "train"), "sets depend on Python's hashes, which are the same in all workers"
    assert len({*train, *questions(one, "dev")}) == 10
    assert sums.tasks("test")[0].id == "chain_sum/test/0"


def test_several_datasets_take_turns_and_experts_answer_all():
    """Two of them have an example of an answer in place of the answer."""
    names = ["gcd", "graph_color", "propositional_logic"]
    place = world(datasets={name: {} for name in names}, count=2)
    tasks = place.tasks("train")
    assert [task.scenario for task in tasks] == names * 2
    found = asyncio.run(scores(place.guarded(60), tasks[:3]))
    assert found["expert"].success == 1.0 and found["nothing"].reward == 0.0
    assert asyncio.run(violations(place.guarded(60), tasks[1])) == []


def test_without_a_reference_answer_there_is_no_expert_and_a_scorer_that_fails_pays_nothing():
    place = world(datasets={"boxnet": {}, "prime_factorization": {}}, count=1)
    boxes, factors = place.tasks("train")
    env = place.make()
    with pytest.raises(NoExpert, match="no expert for 'boxnet/train/0'"):
        asyncio.run(play(env, boxes, env.expert(boxes)))
    assert "expert" not in asyncio.run(scores(place.guarded(60), [boxes]))
    outcome = asyncio.run(play(place.make(), factors, Script(["no idea"]))).outcome
    assert outcome.reward == 0.0 and "ValueError" in outcome.info["scorer"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"datasets": {"gcd": {"min_terms": 3}}}, r"env.datasets.gcd = .*unexpected keyword argument 'min_terms'"),
        ({"count": 0}, "env.count = 0"),
    ],
)
def test_bad_options_are_refused(options, complaint):
    with pytest.raises(UserError, match=complaint):
        world(**options).tasks("train")
