"""Multi-hop questions: scores by hand, the corpus by searching, the experts, and bad input."""

import asyncio
import json

import pytest

pytest.importorskip("bm25s", reason="the package bm25s is not installed")

from hypothesis import given
from hypothesis import strategies as st

from longloop.diagnose.trial import difference, scores
from longloop.envs.contract import tasks_of
from longloop.envs.multihop_qa import MultihopQA, exact_match, f1, normalized
from longloop.envs.play import play
from longloop.types import Message, Task, UserError
from tests.support import published

DATA = published.folder("multihop_qa")
real = published.needed("multihop_qa")

HOTPOT = {
    "_id": "q1",
    "question": "In which country was the author of Tin Boats born?",
    "answer": "Iceland",
    "supporting_facts": [["Ása Berg", 0], ["Tin Boats", 1], ["Tin Boats", 7]],
    "context": [
        ["Tin Boats", ["Tin Boats is a novel. ", " It was written by Ása Berg."]],
        ["Ása Berg", ["Ása Berg was born in Iceland."]],
        ["Paper Boats", ["Paper Boats is another novel."]],
    ],
}
OTHER = {
    "_id": "q2",
    "question": "Is Paper Boats a film?",
    "answer": "no",
    "supporting_facts": [["Paper Boats", 0]],
    "context": [["Paper Boats", ["Paper Boats is another novel."]], ["Rowing", ["Rowing moves boats."]]],
}
MUSIQUE = {
    "id": "m1",
    "question": "Where was the author of Tin Boats born?",
    "answer": "Iceland",
    "answer_aliases": ["the Republic of Iceland"],
    "paragraphs": [
        {"idx": 0, "title": "Berg", "paragraph_text": "Ása Berg was born in Iceland."},
        {"idx": 1, "title": "Tin Boats", "paragraph_text": "Tin Boats was written by Ása Berg."},
        {"idx": 2, "title": "Tin Boats", "paragraph_text": "Tin Boats sold well."},
    ],
    "question_decomposition": [
        {"question": "Tin Boats >> author", "answer": "Ása Berg", "paragraph_support_idx": 1},
        {"question": "Where was #1 born?", "answer": "Iceland", "paragraph_support_idx": 0},
    ],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    """The three data sets in small: HotpotQA as the array it is published as, MuSiQue line by line."""
    folder = tmp_path_factory.mktemp("multihop_qa")
    for name in ("hotpot_{}_v1.json", "2wiki_{}.json"):
        (folder / name.format("train")).write_text(json.dumps([HOTPOT]))
        (folder / name.format("dev")).write_text(json.dumps([OTHER]))
    for split in MultihopQA.splits:
        (folder / f"musique_ans_v1.0_{split}.jsonl").write_text(json.dumps(MUSIQUE) + "\n\n")
    return str(folder)


def started(data: str, split: str = "train", **options) -> MultihopQA:
    env = MultihopQA(MultihopQA.Options(data=data, **options))
    env.start(MultihopQA.tasks(split, MultihopQA.Options(data=data, **options))[0])
    return env


def says(env: MultihopQA, action: str) -> str:
    step = env.step(Message("assistant", f"Action: {action}"))
    return "DONE" if step.done else step.messages[0].content


def test_answers_are_normalised():
    assert normalized("  The Beatles' (1962) album: A  Day! ") == "beatles 1962 album day"
    assert normalized("theatre an anthem") == "theatre anthem", "articles are whole words"
    assert normalized("U.S.A.") == "usa"
    assert exact_match("The U.S.A.", "usa") and not exact_match("USA", "US")
    assert normalized("the") == ""


@pytest.mark.parametrize(
    ("said", "right", "score"),
    [
        ("Iceland", "iceland.", 1.0),
        ("Republic of Iceland", "Iceland", 0.5),  # precision 1/3, recall 1
        ("Reykjavik Iceland", "Iceland Reykjavik", 1.0),
        ("new new york", "new york york", 2 / 3),  # two words in common, with their number
        ("Norway", "Iceland", 0.0),
        ("yes", "yes", 1.0),
        ("yes it is", "yes", 0.0),
        ("no", "no idea", 0.0),
        ("", "Iceland", 0.0),
        ("the", "a", 0.0),
    ],
)
def test_f1_by_hand(said, right, score):
    assert f1(said, right) == pytest.approx(score)


@given(st.text(), st.text())
def test_f1_is_a_share_and_symmetric(one, other):
    assert 0 <= f1(one, other) <= 1 and f1(one, other) == f1(other, one)
    assert f1(one, one) == (1.0 if normalized(one) else 0.0)


def test_a_page_is_found_by_its_title_or_by_words(data):
    env = started(data)
    page = says(env, "Search[asa berg]")
    assert page == "Ása Berg: Ása Berg was born in Iceland.\nOther pages: Tin Boats"
    page = says(env, "search[novel by Berg]")
    assert page.startswith(
        "No page has the title novel by Berg; the nearest is Tin Boats: Tin Boats is a novel. It was"
    )
    assert "Rowing" in says(env, "Search[boats]"), "the corpus is that of all files"
    assert says(env, "Search[zebra]") == "No page is like zebra."


def test_pages_with_one_title_are_shown_together(data):
    page = says(started(data, dataset="musique"), "Search[Tin Boats]")
    assert "written by" in page and "sold well" in page


@pytest.mark.parametrize(
    ("answer", "kind", "reward", "success"),
    [
        ("iceland", "f1", 1.0, True),
        ("In Iceland", "f1", 2 / 3, False),
        ("In Iceland", "em", 0.0, False),
        ("Iceland.", "em", 1.0, True),
    ],
)
def test_answers_are_paid(data, answer, kind, reward, success):
    env = started(data, reward=kind)
    assert says(env, f"Finish[{answer}]") == "DONE"
    outcome = env.finish()
    assert outcome.reward == pytest.approx(reward) and outcome.success is success


def test_an_alias_is_as_good(data):
    env = started(data, dataset="musique")
    says(env, "Finish[Republic of Iceland]")
    assert env.finish().success


def test_malformed_actions_are_told(data):
    env = started(data)
    for action in ("", "Iceland", "Finish[]", "Search[]", "Lookup[Iceland]", "finish", "[]"):
        assert "no action" in says(env, action)
    assert env.finish().reward == 0.0 and not env.finish().success, "who never answered gets nothing"


def test_forks_are_independent(data):
    env = started(data)
    other = env.fork()
    says(other, "Finish[Norway]")
    says(env, "Finish[Iceland]")
    assert env.finish().success and not other.finish().success


def test_the_expert_looks_up_first_what_the_question_names(data):
    env, task = MultihopQA(MultihopQA.Options(data=data)), MultihopQA.tasks("train", MultihopQA.Options(data=data))[0]
    played = asyncio.run(play(env, task, env.expert(task)))
    actions = [message.content.split("Action: ")[1] for message in played.messages if message.role == "assistant"]
    assert actions == ["Search[Tin Boats]", "Search[Ása Berg]", "Finish[Iceland]"] and played.outcome.success
    assert "I read: It was written by Ása Berg." in played.messages[4].content, "a fact that is not there is left out"


def test_the_expert_of_musique_asks_its_questions(data):
    env = MultihopQA(MultihopQA.Options("musique", data))
    task = MultihopQA.tasks("dev", MultihopQA.Options("musique", data))[0]
    expert = env.expert(task)
    said = [expert.act([Message("user", text)]) for text in ("?", "Tin Boats: ...", "Tin Boats: ...", "Berg: ...")]
    actions = [text.split("Action: ")[1] for text in said]
    assert actions == [
        "Search[Tin Boats, author]",
        "Search[Where was Ása Berg born]",
        "Search[Berg]",
        "Finish[Iceland]",
    ]


def test_data_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.delenv("LONGLOOP_DATA", raising=False)
    with pytest.raises(UserError, match=r"not part of longloop\. hotpotqa\.github\.io has .*env\.data=FOLDER"):
        MultihopQA.tasks("train", MultihopQA.Options())
    with pytest.raises(UserError, match=r"no musique\*train\*\.json\* .*StonyBrookNLP"):
        MultihopQA.tasks("train", MultihopQA.Options("musique", str(tmp_path)))


@pytest.mark.parametrize(
    "broken", [{"answer": None}, {"supporting_facts": None}, {"context": {"title": []}}, {"question": None}]
)
def test_data_of_another_version(tmp_path, broken):
    """For instance the test split, which has no answers, or the parquet layout of the hub."""
    row = {key: value for key, value in (HOTPOT | broken).items() if value is not None}
    (tmp_path / "hotpot_train.json").write_text(json.dumps([HOTPOT, row | {"_id": "q9"}]))
    (tmp_path / "hotpot_dev.json").write_text(json.dumps([OTHER]))
    with pytest.raises(UserError, match=r"hotpot_train\.json, question 2: .*This is not a file of hotpotqa with"):
        MultihopQA.tasks("train", MultihopQA.Options(data=str(tmp_path)))


def test_an_unknown_data_set_is_refused_by_the_config(data):
    from longloop import build, config

    table = {"env": {"name": "multihop_qa", "dataset": "trivia", "data": data}}
    with pytest.raises(UserError, match=r"env\.dataset = 'trivia'"):
        build.world(config.Config.model_validate(table))


@real
@pytest.mark.parametrize(
    ("dataset", "sizes"), [("hotpotqa", (100, 100)), ("2wiki", (500, 100)), ("musique", (100, 100))]
)
def test_floors_and_ceilings(dataset, sizes):
    def make() -> MultihopQA:
        return MultihopQA(MultihopQA.Options(dataset, str(DATA)))

    tasks: dict[str, list[Task]] = {
        split: tasks_of(MultihopQA, split, MultihopQA.Options(dataset, str(DATA))) for split in MultihopQA.splits
    }
    assert tuple(len(tasks[split]) for split in MultihopQA.splits) == sizes
    found = asyncio.run(scores(make, tasks["dev"]))
    assert found["expert"].success == 1.0 and found["nothing"].reward == 0.0
    assert found["say yes"].success < 0.1 and found["random page"].reward < 0.1
    assert not asyncio.run(difference(make, tasks["train"][0]))
