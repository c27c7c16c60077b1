"""The base class of environments: its defaults, its options, and how a class that is none is refused."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from longloop import build, config
from longloop.cache import cache_dir
from longloop.envs.base import Environment
from longloop.envs.contract import check_class
from longloop.envs.guess import Guess
from longloop.envs.play import expert_of
from longloop.options import environment_options
from longloop.types import Message, Task, UserError
from tests.support.obedient import Obedient, made, pool

TASK = Task("one", "train")


class Bare(Environment):
    @classmethod
    def tasks(cls, split: str, options: Any) -> list[Task]:
        return [TASK]

    def start(self, task: Task) -> Any: ...

    def step(self, action: Message) -> Any: ...

    def finish(self) -> Any: ...


class Inheriting(Guess):
    @dataclass(frozen=True)
    class Options(Guess.Options):
        tries: int = 9
        names: list[str] = field(default_factory=list)
        """Names that it knows."""
        table: dict[str, int] = field(default_factory=dict)
        mood: str = field(default="good")


class Demanding(Bare):
    @dataclass(frozen=True)
    class Options:
        path: str
        least: int = 0

        def __post_init__(self) -> None:
            if self.least < 0:
                raise ValueError("least is below zero")


class Unrelated:
    def start(self, task: Task) -> Any: ...


class Changeable(Bare):
    @dataclass
    class Options:
        size: int = 1


class Undecorated(Guess):
    class Options(Guess.Options):
        size: int = 1


class ManyParameters(Bare):
    def __init__(self, size: int = 1) -> None: ...


class TasksWithParameters(Bare):
    @classmethod
    def tasks(cls, split: str, size: int = 1) -> list[Task]:  # type: ignore[override]
        return []


class WithoutStep(Environment):
    tasks, start, finish = Bare.tasks, Bare.start, Bare.finish


def test_what_a_class_leaves_out_has_a_default() -> None:
    env = check_class("bare", Bare)(Bare.Options())
    assert env.splits == ("train", "dev", "test") and env.isolation == "inline" and env.deterministic
    assert not env.can_fork and not env.has_expert and expert_of(env, TASK) is None
    assert env.baselines(TASK) == {} and not env.audit(1, iter) and not env.scenarios()
    assert asyncio.run(env.ready()) is None and env.reward_range is None


def test_a_class_is_known_to_fork_and_to_have_an_expert_also_in_a_worker() -> None:
    assert Guess.can_fork and Guess.has_expert and Inheriting.can_fork and not Bare.can_fork
    where = pool(Obedient)
    try:
        for environment, both in ((Obedient, True), (Bare, False)):
            env = made(where, environment)()
            assert (env.can_fork, env.has_expert, type(env).__name__) == (both, both, environment.__name__)
    finally:
        where.close()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Unrelated, r"env.name = 'x' is no environment: .* class Unrelated\(longloop.Environment\)"),
        (lambda: None, r"is no environment: .* class MyEnv\(longloop.Environment\)"),
        (WithoutStep, r"WithoutStep has no method step\(\)"),
        (Changeable, r"Changeable.Options must be a frozen dataclass: write @dataclass\(frozen=True\)"),
        (Undecorated, r"Undecorated.Options must be a frozen dataclass"),
        (ManyParameters, r"ManyParameters.__init__\(\) .* 'options'. Write def __init__\(self, options\)"),
        (TasksWithParameters, r"TasksWithParameters.tasks\(\) .* Write def tasks\(cls, split, options\)"),
    ],
)
def test_a_class_that_is_no_environment_is_refused_with_what_to_do(found: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_class("x", found)


def test_options_are_read_from_the_source_with_inherited_ones_first() -> None:
    found = environment_options(f"{__name__}:Inheriting")
    assert list(found) == ["highest", "tries", "names", "table", "mood"]
    assert [option.default for option in found.values()] == ["7", "9", "[]", "{}", "'good'"]
    assert found["tries"].meaning == "Guesses that an attempt has." and found["names"].meaning == "Names that it knows."
    assert environment_options(f"{__name__}:Bare") == {}
    assert list(environment_options(f"{__name__}:Demanding")) == ["path", "least"]


def test_public_names_that_a_package_imports_late_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from longloop.envs.guess import Guess\n"
    )
    (tmp_path / "mine.py").write_text("from late import Guess\n\nclass Mine(Guess):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list(environment_options("mine:Mine")) == ["highest", "tries"]


def test_a_file_that_was_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, where the process goes on while the user writes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("before", "after"):
        (tmp_path / "edited.py").write_text(f"class Edited:\n    class Options:\n        {name}: int = 1\n")
        assert list(environment_options("edited:Edited")) == [name]


def settings(*overrides: str) -> config.Config:
    return config.resolve({"env": {"name": f"{__name__}:Demanding"}}, "test", overrides)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((), r"env.path has no default: set it in the \[env\] table"),
        (("env.path=x", "env.least=-1"), r"The \[env\] table is refused: least is below zero"),
        (("env.path=3",), r"env.path = 3: Input should be a valid string"),
        (("env.paths=x",), r"Unknown key 'env.paths' in the config. Did you mean 'env.path'\?"),
    ],
)
def test_options_that_do_not_fit_are_refused(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        build.world(settings(*overrides))


def test_constructor_and_tasks_get_the_same_object() -> None:
    made = build.world(settings("env.path=x"))
    assert made.options == Demanding.Options("x") and made.make().options is made.options


def test_an_expert_that_a_worker_does_not_have() -> None:
    where = pool(HalfExpert)

    async def ask() -> None:
        env = made(where, HalfExpert)()
        try:
            await env.expert(TASK).act([])
        finally:
            await env.finish()

    try:
        with pytest.raises(UserError, match="there is no expert for 'one'; name the splits"):
            asyncio.run(ask())
    finally:
        where.close()


class HalfExpert(Obedient):
    def expert(self, task: Task) -> Any:
        return None


def test_the_cache_is_where_it_always_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "longloop"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "longloop"
