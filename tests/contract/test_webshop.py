"""WebShop: the reward by hand, the pages by clicking, bad input, and, where the data are, everything in them."""

import asyncio
import json
import lzma
import threading
from pathlib import Path

import pytest

pytest.importorskip("bm25s", reason="the package bm25s is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from longloop.diagnose.trial import difference, scores
from longloop.envs.contract import tasks_of
from longloop.envs.play import Script, play
from longloop.envs.webshop.env import WebShop
from longloop.envs.webshop.reward import alike, reward, type_reward
from longloop.envs.webshop.shop import NO_LIMIT, Goal, Product, shop
from longloop.types import Message, Task, UserError
from tests.support import published

DATA = published.folder("webshop")
real = published.needed("webshop")


def item(number: int, title: str, *, price=(15.0,), options=None, attributes=(), features=(), query="mugs") -> dict:
    """A product in WebShop's format."""
    return {
        "asin": f"B{number:09d}",
        "Title": title,
        "Description": f"About {title}.",
        "BulletPoints": list(features),
        "Attributes": list(attributes),
        "options": options or {},
        "pricing": list(price),
        "Price": " to ".join(f"${p}" for p in price),
        "query": query,
        "product_category": "Home \u203a Kitchen \u203a Mugs" if query == "mugs" else "Music \u203a Drums",
    }


ITEMS = [
    item(
        1,
        "Acme Ceramic Mug",
        attributes=["dishwasher safe"],
        options={"color": ["red", "blue"], "size": ["small", "large", "large"]},
    ),
    item(2, "Plain Ceramic Mug", price=(95.0,), features=["Dishwasher safe"]),
    item(3, "Snare Drum", price=(980.0,), query="drums"),
    item(4, "Travel Flask", price=(10.0, 20.0)),
    *(item(number, f"Spare Lid Number {number}") for number in range(5, 20)),
]
WISHES = {row["asin"]: {"attributes": row["Attributes"]} for row in ITEMS} | {
    "B000000001": {
        "attributes": ["dishwasher safe"],
        "instruction": "Find me dishwasher safe mugs",
        "instruction_attributes": ["dishwasher safe"],
    },
    "B000000003": {"attributes": [], "instruction": "Find me loud drums", "instruction_attributes": ["loud"]},
}


def write_shop(folder: Path, items=ITEMS, wishes=WISHES) -> str:
    with lzma.open(folder / "documents_1k.jsonl.xz", "wt") as file:
        file.writelines(
            json.dumps({"id": row["asin"], "contents": row["Title"].lower(), "product": row}) + "\n" for row in items
        )
    (folder / "items_ins_v2_1000.json").write_text(json.dumps(wishes))
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return write_shop(tmp_path_factory.mktemp("webshop"))


def started(data: str, **goal) -> WebShop:
    env = WebShop(WebShop.Options(data))
    wanted = {"product": "B000000001", "instruction": "Buy a mug", "wish": "a mug", "attributes": ["dishwasher safe"]}
    env.start(Task("one", "test", wanted | {"options": {"color": "red", "size": "large"}, "limit": 30.0} | goal))
    return env


def says(env: WebShop, action: str) -> str:
    step = env.step(Message("assistant", f"Thought: hm.\nAction: {action}"))
    return "DONE" if step.done else step.messages[0].content


def product(title: str, query: str = "mugs", categories=("a", "b"), **more) -> Product:
    fields = {"description": "", "features": (), "attributes": (), "options": {}, "tag": "", "price": 10.0}
    return Product(id="X", title=title, query=query, categories=frozenset(categories), **fields | more)


@pytest.mark.parametrize(
    ("one", "other", "percent"),
    [
        ("natural ingredients", "Ingredients, natural", 100),
        ("steel", "stainless steel", 100),
        ("machine wash", "machine washable", 86),  # 2 * 12 / 28
        ("long sleeve", "short sleeve", 71),  # `sleeve` in `sleeve long`: 2 * 6 / 17
        ("red", "blue", 29),  # one letter in common: 2 / 7
        ("abc", "xyz", 0),
        ("", "x", 0),
        ("??", "??", 0),
    ],
)
def test_phrases_are_alike(one, other, percent):
    assert alike(one, other) == alike(other, one) == percent


def test_the_type_of_a_product():
    eleven = "one two three four five six seven eight nine ten eleven"
    wanted = product(eleven)
    assert type_reward(wanted, product(eleven, "other", ("c",))) == 1.0
    assert type_reward(wanted, product("one two three", "other", ("c",))) == 1.0  # 3/11 of the title
    assert type_reward(wanted, product("one two", "other", ("c",))) == 0.5  # 2/11, and nothing else agrees
    assert type_reward(wanted, product("one two", "other", ("a", "b"))) == 1.0  # two categories
    assert type_reward(wanted, product("one two", "other", ("a", "c"))) == 0.5  # one is too few
    assert type_reward(wanted, product("one two", "mugs", ())) == 1.0  # the query
    assert type_reward(wanted, product("one", "mugs")) == 0.1  # 1/11 is less than a tenth, whatever else agrees
    assert type_reward(wanted, product("else", "mugs")) == 0.0
    assert type_reward(product("10 x"), product("10 x", "other", ("c",))) == 0.5  # no noun counts as 0.2


def test_rewards_by_hand():
    goal = Goal("X", "", "", ("machine wash", "soft"), {"color": "dark red", "size": "large"}, 20.0)
    wanted = product("Cotton Shirt")
    good = product("Cotton Shirt", attributes=("machine washable",), features=("Very SOFT",), price=20.0)
    assert reward(goal, wanted, good, {"color": "red-2", "size": "large"})[0] == 1.0  # both are red
    assert reward(goal, wanted, good, {"color": "blue", "size": "large"})[0] == 4 / 5
    assert reward(goal, wanted, good, {})[0] == 3 / 5
    dear = product("Cotton Shirt", attributes=("machine washable",), price=20.01)
    assert reward(goal, wanted, dear, {"size": "large"})[0] == 2 / 5
    other = product("Cotton Linen Blanket", "rugs", (), description="soft", price=1.0)  # half of the title
    assert reward(goal, wanted, other, {})[0] == 2 / 5
    assert reward(goal, wanted, product("Lamp", price=1.0), {"color": "red", "size": "large"})[0] == 0.0
    free = Goal("X", "", "", ("soft",), {}, NO_LIMIT)
    value, parts = reward(free, wanted, good, {"color": "red", "size": "large"})
    assert value == 1.0 and parts == {"type": 1.0, "attributes": 1, "options": 0, "price": 1.0}, "never more than 1"


def test_goals_are_options_times_one_price(data):
    goals = shop(Path(data)).goals
    mugs = [goal for goal in goals if goal.product == "B000000001"]
    assert len(goals) == 7 and len(mugs) == 2 * 3, "a size stands there twice, as published"
    assert len({goal.limit for goal in mugs}) == 1 and mugs[0].limit in (30.0, 40.0, 50.0)
    price = f"and price lower than {mugs[0].limit:.2f} dollars"
    asked = {goal.instruction for goal in mugs}
    assert f"Find me dishwasher safe mugs with color: red, and size: small, {price}" in asked
    (drum,) = (goal for goal in goals if goal.product == "B000000003")
    assert drum.limit == NO_LIMIT and drum.instruction == "Find me loud drums", "of one limit none can be drawn"
    flask = shop(Path(data)).products["B000000004"]
    assert 10 <= flask.price <= 20 and flask.tag == "$10.0 to $20.0"


def test_a_visit(data):
    env = started(data)
    page = says(env, "search[ceramic mug]")
    assert page.splitlines()[:2] == ["[back to search]", "Page 1 of 1"]
    assert "[b000000001] Acme Ceramic Mug, $15.0" in page and "[b000000002]" in page and "drum" not in page.lower()
    page = says(env, "click[B000000001]")
    assert "color: [red] [blue]\nsize: [small] [large]\n[description]" in page
    assert "dishwasher safe" in says(env, "click[attributes]")
    assert "About Acme Ceramic Mug." not in says(env, "click[< prev]")
    assert "About Acme Ceramic Mug." in says(env, "click[Description]")
    assert "features: none" in [says(env, "click[< prev]"), says(env, "click[features]")][1]
    says(env, "click[< prev]")
    assert "color (blue is chosen)" in says(env, "click[blue]")
    assert "color (red is chosen)" in says(env, "click[ RED ]")
    assert env.finish().reward == 0.0, "nothing is bought yet"
    says(env, "click[large]")
    assert says(env, "click[buy now]") == "DONE"
    assert env.finish().reward == 1.0 and env.finish().success


def test_pages_of_results_and_ways_back(data):
    env = started(data)
    page = says(env, "search[spare lid]")
    assert page.startswith("[back to search] [next >]\nPage 1 of 2") and page.count("Spare Lid") == 10
    page = says(env, "click[next >]")
    assert page.startswith("[back to search] [< prev]\nPage 2 of 2") and page.count("Spare Lid") == 5
    says(env, "click[b000000019]")
    assert says(env, "click[< prev]") == page, "back to the page it was on"
    assert "Page 1 of 2" in says(env, "click[< prev]")
    assert "search page" in says(env, "click[back to search]")
    assert "Nothing was found" in says(env, "search[zebra]")
    assert "Page 1 of 1" in says(env, "search[mug]"), "a search is possible from every page"


def test_options_are_forgotten_when_a_page_is_left(data):
    env = started(data)
    for action in (
        "search[acme]",
        "click[b000000001]",
        "click[red]",
        "click[large]",
        "click[< prev]",
        "click[b000000001]",
    ):
        says(env, action)
    says(env, "click[buy now]")
    assert env.finish().reward == 2 / 4, "attribute and price; no option"


def test_malformed_actions_change_nothing(data):
    env = started(data)
    before = says(env, "search[mug]")
    for action in (
        "",
        "buy it",
        "click",
        "search[]",
        "click[]",
        "click[b999999999]",
        "click[buy now]",
        "press[next >]",
        "][",
    ):
        assert says(env, action) != "DONE"
    assert "no button [buy now]" in says(env, "click[buy now]") and "[b000000002]" in says(env, "click[buy now]")
    assert "no action" in says(env, "I would like to buy it")
    assert before == env._shown()
    assert env.finish().reward == 0.0


@given(
    actions=st.lists(
        st.one_of(
            st.text(max_size=20),
            st.sampled_from(
                [
                    "search[mug]",
                    "click[b000000001]",
                    "click[red]",
                    "click[< prev]",
                    "click[next >]",
                    "click[back to search]",
                    "click[features]",
                ]
            ),
        ),
        max_size=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_text_is_an_action(data, actions):
    env = started(data)
    for action in actions:
        assert says(env, action)
    assert 0 <= env.finish().reward <= 1


def test_equal_pages_have_equal_keys(data):
    env = started(data)

    def key(action):
        return env.step(Message("assistant", f"Action: {action}")).info["state"]

    found, nonsense, product, red = map(key, ("search[acme]", "dance", "click[b000000001]", "click[red]"))
    assert found == nonsense and len({found, product, red}) == 3
    assert env.fork().step(Message("assistant", "Action: dance")).info["state"] == red
    assert key("click[< prev]") == found and key("click[b000000001]") == product


def test_forks_are_independent(data):
    env = started(data)
    for action in ("search[acme]", "click[b000000001]", "click[red]"):
        says(env, action)
    other = env.fork()
    for action in ("click[blue]", "click[large]", "click[buy now]"):
        says(other, action)
    for action in ("click[large]", "click[buy now]"):
        says(env, action)
    assert env.finish().reward == 1.0 and other.finish().reward == 3 / 4


def test_players_of_a_small_shop(data):
    tasks = tasks_of(WebShop, "test", WebShop.Options(data))
    found = asyncio.run(scores(lambda: WebShop(WebShop.Options(data)), tasks))
    mugs = [task.id for task in tasks if task.data["product"] == "B000000001"]
    assert set(found["expert"].successes) >= set(mugs)
    assert found["nothing"].reward == 0 and found["buy first result"].success == 0
    drum = next(task for task in tasks if task.id not in mugs)
    played = asyncio.run(play(WebShop(WebShop.Options(data)), drum, WebShop(WebShop.Options(data)).expert(drum)))
    assert played.outcome.reward == 1 / 2, "this drum is not loud: the data may ask for what no product has"


def test_data_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.delenv("LONGLOOP_DATA", raising=False)
    with pytest.raises(UserError, match=r"not part of longloop.*setup\.sh.*env\.data=FOLDER"):
        WebShop.tasks("train", WebShop.Options())
    with pytest.raises(UserError, match=r"no folder .*/nowhere\."):
        WebShop.tasks("train", WebShop.Options(data=str(tmp_path / "nowhere")))
    with pytest.raises(UserError, match=r"no documents_1k\.jsonl \(or documents_1k\.jsonl\.xz\) in"):
        WebShop.tasks("train", WebShop.Options(data=str(tmp_path)))
    monkeypatch.setenv("LONGLOOP_DATA", str(tmp_path))
    (tmp_path / "webshop").mkdir()
    write_shop(tmp_path / "webshop")
    assert len(WebShop.tasks("test", WebShop.Options())) == 7


def test_data_of_another_version(tmp_path):
    write_shop(tmp_path, wishes={})
    with pytest.raises(UserError, match=r"not of one version: KeyError 'B000000001'"):
        WebShop.tasks("train", WebShop.Options(data=str(tmp_path)))
    write_shop(tmp_path, items=[{**ITEMS[0], "options": None}])
    with pytest.raises(UserError, match="not the files of WebShop small"):
        WebShop.tasks("train", WebShop.Options(data=str(tmp_path)))
    (tmp_path / "documents_1k.jsonl.xz").write_bytes((tmp_path / "documents_1k.jsonl.xz").read_bytes()[:60])
    with pytest.raises(UserError, match="cannot be read"):
        WebShop.tasks("train", WebShop.Options(data=str(tmp_path)))
    (tmp_path / "documents_1k.jsonl").write_text("")
    with pytest.raises(UserError, match="keep one of them"):
        WebShop.tasks("train", WebShop.Options(data=str(tmp_path)))


@real
def test_all_published_goals():
    """415 products, 6,910 goals, in three splits that have none in common."""
    everything = {split: tasks_of(WebShop, split, WebShop.Options(str(DATA))) for split in WebShop.splits}
    assert {split: len(tasks) for split, tasks in everything.items()} == {"train": 5410, "dev": 1000, "test": 500}
    assert len({task.id for tasks in everything.values() for task in tasks}) == 6910
    assert len({task.data["product"] for tasks in everything.values() for task in tasks}) == 415
    assert tasks_of(WebShop, "train", WebShop.Options(str(DATA))) == everything["train"]
    assert WebShop.tasks("nonsense", WebShop.Options(data=str(DATA))) == []


@real
def test_floor_and_ceiling_of_the_test_split():
    tasks = WebShop.tasks("test", WebShop.Options(data=str(DATA)))[::4]
    found = asyncio.run(scores(lambda: WebShop(WebShop.Options(str(DATA))), tasks))
    assert found["expert"].success == 1.0
    assert found["nothing"].reward == 0.0
    assert found["random clicks"].reward < found["buy first result"].reward < 0.6
    assert found["buy first result"].success < 0.1
    assert not asyncio.run(difference(lambda: WebShop(WebShop.Options(str(DATA))), tasks[0]))


@real
def test_every_option_of_every_product_can_be_clicked():
    place = shop(DATA)
    for wanted in place.products.values():
        env = started(str(DATA))
        env._found, env._page = [wanted.id], 1
        says(env, f"click[{wanted.id}]")
        for name, values in wanted.options.items():
            for value in values:
                says(env, f"click[{value}]")
                assert env._chosen[name] == value, (wanted.id, name, value)


@real
def test_attempts_side_by_side_do_not_disturb_one_another():
    tasks = WebShop.tasks("test", WebShop.Options(data=str(DATA)))[:24]
    outcomes: dict[str, float] = {}

    def one(task: Task) -> None:
        env = WebShop(WebShop.Options(str(DATA)))
        played = asyncio.run(play(env, task, env.expert(task)))
        again = [message.content for message in played.messages if message.role == "assistant"]
        outcomes[task.id] = asyncio.run(play(WebShop(WebShop.Options(str(DATA))), task, Script(again))).outcome.reward

    threads = [threading.Thread(target=one, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes == {task.id: 1.0 for task in tasks}
