"""The config: what it accepts, and how it refuses."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from longloop import build, config
from longloop.algos.loop import Loop
from longloop.config import make_options, options_for
from longloop.envs.guess import Guess
from longloop.types import UserError
from tests.support.helpers import write_config

CONFIGS = [*config.SHIPPED.values(), *sorted(Path("recipes").glob("*/*.toml"))]


def refuse(tmp_path, text: str, *overrides: str) -> str:
    with pytest.raises(UserError) as error:
        config.load(write_config(tmp_path, text), overrides)
    return str(error.value)


def test_every_committed_config_is_valid():
    assert CONFIGS
    for path in CONFIGS:
        loaded = config.load(path)
        build.algorithm(loaded)
        try:
            build.world(loaded).tasks(loaded.split)
        except UserError as error:  # its virtualenv or its data are not on this machine
            assert "longloop envs install" in str(error) or "FOLDER" in str(error), path


def test_several_splits_are_trained_on_together(tmp_path):
    loaded = config.load(
        write_config(tmp_path, "[env]\nname = 'errands'\nper_scenario = 2\n"), ["split=train, practice"]
    )
    place = build.world(loaded)
    assert place.tasks(loaded.split) == place.tasks("train") + place.tasks("practice")
    with pytest.raises(UserError, match=r"the split 'practise'\. Did you mean 'practice'\? It declares train, "):
        place.tasks("train,practise")
    with pytest.raises(UserError, match="a task with the same id"):
        place.tasks("train,train")


def test_what_is_saved_reads_back_the_same(tmp_path):
    loaded = config.load(write_config(tmp_path), ["algo.clip=0.3", "rollout.stop=['x', 'y']"])
    assert config.load(write_config(tmp_path, loaded.to_toml())) == loaded


def test_overrides_are_toml_values_and_bare_words_are_strings(tmp_path):
    loaded = config.load(write_config(tmp_path), ["steps=7", "eval.split=test", "algo.clip=0.25", "save.every = 2"])
    assert (loaded.steps, loaded.eval.split, loaded.algo["clip"], loaded.save.every) == (7, "test", 0.25, 2)


def test_unknown_key_is_named_with_file_and_nearest(tmp_path):
    message = refuse(tmp_path, "[env]\nname = 'guess'\n[rollout]\nmax_turn = 3\n")
    assert "'rollout.max_turn'" in message
    assert "config.toml" in message
    assert "Did you mean 'rollout.max_turns'?" in message


def test_unknown_override_says_command_line(tmp_path):
    message = refuse(tmp_path, "[env]\nname = 'guess'\n", "stepz=3")
    assert "command line" in message
    assert "'steps'" in message


def test_wrong_type_is_named(tmp_path):
    message = refuse(tmp_path, "steps = 'many'\n[env]\nname = 'guess'\n")
    assert "'steps'" in message
    assert "integer" in message
    assert "'many'" in message
    assert "greater than 0" in refuse(tmp_path, "steps = 0\n[env]\nname = 'guess'\n")


def test_missing_table_newer_format_bad_toml_and_missing_file(tmp_path):
    assert "lacks the key 'env'" in refuse(tmp_path, "steps = 1\n")
    assert "format 99" in refuse(tmp_path, "format = 99\nnews = true\n")
    assert "not valid TOML" in refuse(tmp_path, "steps = \n")
    (tmp_path / "latin.toml").write_bytes("# Größe\n".encode("latin-1"))
    with pytest.raises(UserError, match="text in UTF-8"):
        config.load(tmp_path / "latin.toml")
    with pytest.raises(UserError, match=r"nowhere\.toml"):
        config.load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("override", ["steps", "=3", ".=3", "steps.x=3"])
def test_malformed_overrides(tmp_path, override):
    refuse(tmp_path, "steps = 1\n[env]\nname = 'guess'\n", override)


@pytest.mark.parametrize(("table", "options"), [("algo", {"clip": 0.3}), ("engine", {"slots": 4})])
def test_a_table_without_a_name_means_the_class_that_no_table_means(table: str, options: dict[str, object]) -> None:
    guess = {"env": {"name": "guess"}}
    default = getattr(config.resolve(dict(guess), "the test"), table)
    assert getattr(config.resolve(guess | {table: options}, "the test"), table) == default | options
    with pytest.raises(UserError, match=f"'{table}.nmae' in the config. Did you mean '{table}.name'"):
        build.written_out(config.resolve(guess | {table: {"nmae": "sft"}}, "the test"))
    listed = {setting.key for setting in config.settings(guess | {table: options})}
    assert {f"{table}.{key}" for key in options} <= listed


def test_options_are_checked_against_the_class():
    assert options_for(Loop, {"name": "loop", "clip": 0.2, "ratio": "turn"}, "algo") == {"clip": 0.2, "ratio": "turn"}
    with pytest.raises(UserError, match=r"algo\.clipp.*Did you mean 'algo\.clip'"):
        options_for(Loop, {"clipp": 0.2}, "algo")
    with pytest.raises(UserError, match=r"algo\.ratio = 'word'"):
        options_for(Loop, {"ratio": "word"}, "algo")
    with pytest.raises(UserError, match=r"env\.tries"):
        make_options(Guess.Options, {"tries": "two"})


@pytest.mark.parametrize(
    ("file", "overrides", "source"),
    [
        ({"enough": 0.5}, [], "a file"),
        ({"enough": 0.7, "straggler_cutoff": 0.5}, [], "a file"),
        ({}, ["rollout.enough=0.5"], "the overrides"),
        ({"straggler_cutoff": 0.7}, ["rollout.enough=0.5"], "the overrides"),
        ({"enough": 0.7}, ["rollout.straggler_cutoff=0.5"], "a file"),
    ],
)
def test_a_renamed_key_is_taken_and_its_new_name_told(
    file: dict[str, float], overrides: list[str], source: str
) -> None:
    """An override counts more than the file, by whichever name."""
    tree = {"env": {"name": "guess"}, "rollout": file}
    with pytest.warns(FutureWarning, match=f"'rollout.enough' in {source} is now called 'rollout.straggler_cutoff'"):
        assert config.resolve(tree, "a file", overrides).rollout.straggler_cutoff == 0.5


def test_none_stands_for_the_default_and_is_not_written(tmp_path):
    tree = {"env": {"name": "guess"}, "engine": {"name": "native", "graphs": None}}
    written = build.written_out(config.resolve(tree, "the test", []))
    assert "graphs" not in written.engine
    assert "graphs" not in written.to_toml()


@dataclass(frozen=True)
class Kinds:
    words: tuple[str, ...] = ()
    file: Path = Path("x")
    some: frozenset[int] = frozenset()


def test_lists_and_texts_may_be_tuples_sets_and_paths():
    made = make_options(Kinds, {"words": ["a", "b"], "file": "data/x.txt", "some": [1, 1, 2]})
    assert made == Kinds(("a", "b"), Path("data/x.txt"), frozenset({1, 2}))
    for table in ({"words": "ab"}, {"words": [1]}, {"file": 1}, {"some": ["1"]}):
        with pytest.raises(UserError, match=r"env\."):
            make_options(Kinds, table)
