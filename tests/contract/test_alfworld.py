"""ALFWorld: the real games in the Python that has them, and what needs no game."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from longloop.config import make_options
from longloop.envs.alfworld import pddl
from longloop.envs.alfworld.env import Alfworld, games
from longloop.isolation import virtualenv
from longloop.types import Task, UserError
from tests.support.published import folder, needed

ROOT = Path(__file__).parents[2]
SESSION = Path(__file__).with_name("alfworld_session.py")
GAMES = (
    "valid_seen/look_at_obj_in_light-CD-None-DeskLamp-320/",
    "valid_seen/pick_clean_then_place_in_recep-Cloth-None-Cabinet-405/",
)


def python() -> str:
    """A Python that has ALFWorld: this one, or that of the virtualenv that `longloop envs install alfworld` builds."""
    if importlib.util.find_spec("alfworld") and importlib.util.find_spec("fast_downward"):
        return sys.executable
    return virtualenv.python("alfworld", Alfworld)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small games out of the archive, where ALFWorld is installed."""
    try:
        python()
    except UserError as error:
        pytest.skip(str(error))
    place = tmp_path_factory.mktemp("alfworld")
    with tarfile.open(folder("alfworld") / "games.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        for member in archive:
            if member.isfile() and any(game in member.name for game in GAMES):
                archive.extract(member, place)
    return place


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def first(data: Path, cache: Path) -> Any:
    """The games as the first process of ours plays them, which translates them and fills the cache."""
    return session("ours", data, cache, hash_seed=2)


@pytest.fixture(scope="module")
def found(data: Path, cache: Path, first: Any) -> Any:
    """What is seen of players, answers, copies and keys, in one process."""
    return session("players,answers,copies,keys", data, cache)


def session(what: str, data: Path, cache: Path, hash_seed: int = 0) -> Any:
    variables = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": str(hash_seed),
        "XDG_CACHE_HOME": str(cache),
        "ALFWORLD_DATA": str(data),
    }
    done = subprocess.run(
        [python(), str(SESSION), what, str(data)], env=variables, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@needed("alfworld")
def test_games_say_what_they_say_upstream_with_and_without_the_cache(data: Path, cache: Path, first: Any) -> None:
    upstream = session("upstream", data, cache, hash_seed=1)
    assert [game[-1][2] for game in upstream] == [True, True]  # the walkthroughs win
    assert all(game[3][0] == "Nothing happens." for game in upstream)  # "dance"
    assert first == {"games": upstream, "argv": ["ours", str(data)]}
    kept = sorted((cache / "longloop" / "alfworld").iterdir())
    assert len(kept) == len(GAMES) and all(file.suffix == ".z" for file in kept)
    again = session("untranslated", data, cache, hash_seed=3)  # another process, which cannot translate
    assert again == {"games": upstream, "argv": ["untranslated", str(data)]}


@needed("alfworld")
def test_a_damaged_translation_is_made_again(data: Path, cache: Path, first: Any, tmp_path: Path) -> None:
    shutil.copytree(cache, tmp_path, dirs_exist_ok=True)
    for number, file in enumerate(sorted((tmp_path / "longloop" / "alfworld").iterdir())):
        file.write_bytes(b"" if number else file.read_bytes()[:1000])
    assert session("ours", data, tmp_path) == first
    assert session("untranslated", data, tmp_path)["games"] == first["games"]


@needed("alfworld")
def test_experts_win_and_others_do_not(found: Any) -> None:
    assert len(found["players"]) == len(GAMES)
    for game, by_player in found["players"].items():
        scores = {name: (played["reward"], played["success"]) for name, played in by_player.items()}
        assert scores == {
            "expert": (1.0, True),
            "again": (1.0, True),
            "handcoded": (1.0, True),
            "nothing": (0.0, False),
            "random": (0.0, False),
        }
        assert by_player["again"] == by_player["expert"]
        (system, prompt), (user, room), (_, turn), (_, answer), *_ = by_player["expert"]["said"]
        assert (system, user) == ("system", "user") and "Action:" in prompt
        assert room.startswith("You are in the middle of a room.") and "Your task is to:" in room
        _, thing, _, place, _ = game.partition("/")[0].lower().split("-")
        thought, _, command = turn.partition("\n")
        assert thought.startswith("Thought: I want ") and command.startswith("Action: go to ")
        assert all(name in text for name in (thing, place) for text in (thought, room.partition("Your task is to:")[2]))
        assert answer.startswith("You arrive at ")


@needed("alfworld")
def test_an_action_is_any_text(found: Any) -> None:
    answers = found["answers"]
    plain = answers["plain"]
    assert plain[0].startswith("You arrive at ") and plain[1:] == [False, 0.0]
    for name in ("no thought", "loud", "marked", "two"):
        assert answers[name] == plain, name
    for name in ("nothing", "label alone", "nonsense", "long"):
        assert answers[name] == ["Nothing happens.", False, 0.0], name


@needed("alfworld")
def test_a_copy_goes_its_own_way(found: Any) -> None:
    copies = found["copies"]
    assert copies["fork"] == [True, True] and copies["env"] is False
    shown = copies["opening"].partition("\nYou can: ")[2].split(", ")
    assert "look" in shown and "inventory" in shown and any(command.startswith("go to ") for command in shown)


@needed("alfworld")
def test_equal_states_have_equal_keys(found: Any) -> None:
    there, looked, copied, elsewhere, _ = found["keys"]
    assert there == looked == copied != elsewhere


@needed("alfworld")
def test_games_and_keys_are_the_same_in_another_process(data: Path, cache: Path, found: Any) -> None:
    assert session("players,keys", data, cache, hash_seed=7) == {name: found[name] for name in ("players", "keys")}


def write_game(place: Path, name: str, **content: Any) -> None:
    file = place / "json_2.1.1" / name / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"solvable": True, "walkthrough": ["look"]} | content))


def test_tasks_are_the_games_that_alfworld_plays(tmp_path: Path) -> None:
    write_game(tmp_path, "train/pick_heat-Egg-None-Plate-1/trial_1")
    write_game(tmp_path, "train/pick_heat-Egg-None-Plate-1/trial_2")
    write_game(tmp_path, "train/pick_heat-Egg-None-Plate-1/trial_3", solvable=False)
    write_game(tmp_path, "train/pick_heat-AppleSliced-None-Plate-1/trial_4")
    write_game(tmp_path, "train/pick_and_place_with_movable_recep-Egg-Cup-Shelf-1/trial_5")
    write_game(tmp_path, "valid_train/look_at-Pen-None-Lamp-2/trial_6")
    assert Alfworld.tasks("train", Alfworld.Options(data=str(tmp_path))) == [
        Task(
            f"pick_heat-Egg-None-Plate-1/trial_{n}",
            "train",
            {"game": f"train/pick_heat-Egg-None-Plate-1/trial_{n}", "type": "pick_heat"},
            scenario="pick_heat-Egg-None-Plate-1",
        )
        for n in (1, 2)
    ]
    for split in ("dev", "valid_train"):
        assert [(task.id, task.split) for task in Alfworld.tasks(split, Alfworld.Options(data=str(tmp_path)))] == [
            ("look_at-Pen-None-Lamp-2/trial_6", split)
        ]
    assert Alfworld.tasks("test", Alfworld.Options(data=str(tmp_path))) == []
    with pytest.raises(
        UserError, match=r"split 'valid_seen' should lie in .*valid_seen, and no game.tw-pddl .*alfworld-d"
    ):
        Alfworld.tasks("valid_seen", Alfworld.Options(data=str(tmp_path)))


def test_missing_data_and_packages_are_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no folder .*json_2.1.1. `alfworld-download` .*env.data or \$ALFWORLD_DATA"):
        Alfworld(Alfworld.Options(str(tmp_path)))
    write_game(tmp_path, "train/look_at-Pen-None-Lamp-2/trial_1")
    monkeypatch.setenv("LONGLOOP_DATA", str(tmp_path.parent))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(UserError, match=r"/alfworld/json_2\.1\.1"):
        games()
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    assert games() == tmp_path / "json_2.1.1"
    with pytest.raises(UserError, match=r"env\.expert = 'planner': Input should be 'walkthrough' or 'handcoded'"):
        make_options(Alfworld.Options, {"expert": "planner"})
    old = tmp_path / "json_2.1.1" / "train" / "look_at-Pen-None-Lamp-2" / "trial_1" / "game.tw-pddl"
    monkeypatch.setitem(sys.modules, "fast_downward", None)
    with pytest.raises(UserError, match=r"packages are not installed .*`longloop envs install alfworld`"):
        pddl.Game(old)
    old.write_text(json.dumps({"pddl_domain": "", "grammar": "", "pddl_problem": ""}))
    with pytest.raises(UserError, match="another version of ALFWorld"):
        Alfworld.tasks("train", Alfworld.Options())
