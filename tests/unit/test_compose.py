"""Methods put together in the config."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from torch import Tensor

from longloop import build
from longloop.algos import compose
from longloop.algos.compose import Compose, made_of
from longloop.algos.composed import Composed, Parts, differing
from longloop.algos.parts.credit import Anchors
from longloop.algos.parts.hold import Hold, Kl
from longloop.algos.parts.objective import Clipped
from longloop.types import Batch, Group, Metrics, Now, Scored, UserError
from tests.support.helpers import load_config, train
from tests.support.samples import TASK, attempt


def test_parts_are_written_as_names_and_settings() -> None:
    made = Compose(advantages="anchors w=0.5", objective="clipped low=0.8 high=1.28", hold=("kl coefficient=0.01",))
    assert made.parts == Parts(credit=Anchors(w=0.5), objective=Clipped(low=0.8, high=1.28), hold=(Kl(0.01),))
    assert made.needs_reference and made.hooks == {"state"}
    assert Compose().parts == Parts()
    assert differing(made.parts, Parts()).keys() == {"credit", "objective", "hold"}
    assert made.parts is made.parts, "they are put together once"


@pytest.mark.parametrize(
    ("slot", "text", "words"),
    [
        ("credit", "ankors", ["no part 'ankors'", "Did you mean 'anchors'?", "leave_one_out"]),
        ("credit", "kl", ["no part 'kl'"]),
        ("credit", "anchors v=1", ["'v=1' is no setting of 'anchors'", "gamma, history, w"]),
        ("hold", "kl 0.1", ["'0.1' is no setting of 'kl'", "key=value"]),
    ],
)
def test_a_mistake_is_explained(slot: str, text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as raised:
        made_of(slot, text)
    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize(("slot", "setting"), [("credit", "advantages"), ("shape", "shape")])
def test_a_mistake_names_the_setting_that_it_is_in(slot: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "returns" if slot == "credit" else "nudge"
    with pytest.raises(UserError, match=rf"^algo\.{setting}: there is no part"):
        made_of(slot, "ankors")
    with pytest.raises(UserError, match=rf"^algo\.{setting}: 'v=1' is no setting"):
        made_of(slot, f"{name} v=1")
    monkeypatch.setattr(compose, "kinds", lambda slot: (Needy,))
    with pytest.raises(UserError, match=rf"^algo\.{setting}: 'needy' needs size"):
        made_of(slot, "needy")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (("turn_entropy", "entropy_up"), "turn_entropy and entropy_up cannot be combined, because both scale adv"),
        (("entropy_down", "nudge", "entropy_up w=0.1"), "entropy_down and entropy_up cannot be combined.*keep one"),
        (("turn_entropy", "nudge"), "turn_entropy and nudge cannot be combined in this order: name .* last"),
    ],
)
def test_shapes_that_undo_each_other_are_refused(shape: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Compose(shape=shape)
    parts = Parts(shape=tuple(made_of("shape", text) for text in shape))
    with pytest.raises(UserError, match=words):
        type("Stacked", (Composed,), {"parts": parts})()
    for text in shape:
        assert Compose(shape=(text,)).parts.shape == (made_of("shape", text),), "each alone is a method"
    Compose(shape=("nudge", "turn_entropy"))
    Compose(shape=("turn_entropy center=false", "nudge"))


@dataclass(frozen=True)
class Needy(Hold):
    """A part with a setting that has no default."""

    size: float
    by: tuple[str, ...] = field(default_factory=tuple)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        raise NotImplementedError


def test_a_setting_without_a_default_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "kinds", lambda slot: (Needy,))
    with pytest.raises(UserError, match=r"'needy' needs size; write it as needy size="):
        made_of("hold", "needy")
    assert made_of("hold", "needy size=2.0") == Needy(2.0)


def test_a_slot_is_filled_by_its_own_parts_alone() -> None:
    found = {kind.__name__ for kind in compose.kinds.__wrapped__("hold")}
    assert found == {"Anchor", "Corridor", "HoldCovarying", "HoldRare", "Kl", "ReverseKl", "ValueLoss"}
    for slot, text in (("credit", "kl"), ("hold", "hold"), ("objective", "objective")):
        with pytest.raises(UserError, match=f"there is no part '{text}'"):
            made_of(slot, text)
    with pytest.raises(UserError, match=r"algo\.k = 1"):
        Compose(k=1)
    assert [Compose(objective=f"clipped ratio={unit}").whole_units for unit in ("turn", "trajectory")] == [False, True]


def test_the_choice_of_tasks_learns_from_the_step() -> None:
    """And nothing is read where there is nothing to read."""
    algo, now = Compose(tasks="bandit"), Now(1, 9)
    groups = [Group(TASK, (attempt(1.0, (1,), 0), attempt(0.0, (1,), 1)))]
    algo.credit(groups, None, now)  # type: ignore[arg-type]
    assert now.memory["Bandit"]["train"]["sizes"] == [1.0, 1.0]  # type: ignore[index, call-overload]
    assert Compose(hold=("kl",)).credit([], None, now) == []  # type: ignore[arg-type]


def test_it_can_be_trained_with_from_a_config(tmp_path: Path) -> None:
    settings = ["algo.name=compose", "algo.advantages='centered'", "algo.hold=['kl coefficient=0.01']"]
    algo = build.algorithm(load_config(tmp_path, *settings))
    assert algo.parts.hold == (Kl(0.01),)
    _, _, steps = train(tmp_path, *settings, "steps=2")
    assert any("reference_kl" in step["update"] for step in steps)


def test_a_mistake_in_the_config_is_told_before_a_run_begins(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"algo\.hold: there is no part 'k1'"):
        build.algorithm(load_config(tmp_path, "algo.name=compose", "algo.hold=['k1']"))
