"""Methods put together in the config."""

from pathlib import Path

import pytest

from longloop import build
from longloop.algos.compose import Compose, made_of
from longloop.algos.composed import Parts, differing
from longloop.algos.parts.credit import Anchors
from longloop.algos.parts.hold import Kl
from longloop.algos.parts.objective import Clipped
from longloop.types import UserError
from tests.support.helpers import load_config, train


def test_parts_are_written_as_names_and_settings() -> None:
    made = Compose(advantages="anchors w=0.5", objective="clipped low=0.8 high=1.28", hold=("kl coefficient=0.01",))
    assert made.parts == Parts(credit=Anchors(w=0.5), objective=Clipped(low=0.8, high=1.28), hold=(Kl(0.01),))
    assert made.needs_reference and made.hooks == {"state"}
    assert Compose().parts == Parts()
    assert differing(made.parts, Parts()).keys() == {"credit", "objective", "hold"}


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


def test_it_can_be_trained_with_from_a_config(tmp_path: Path) -> None:
    settings = ["algo.name=compose", "algo.advantages='centered'", "algo.hold=['kl coefficient=0.01']"]
    algo = build.algorithm(load_config(tmp_path, *settings))
    assert algo.parts.hold == (Kl(0.01),)
    _, _, steps = train(tmp_path, *settings, "steps=2")
    assert any("reference_kl" in step["update"] for step in steps)


def test_a_mistake_in_the_config_is_told_before_a_run_begins(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"algo\.hold: there is no part 'k1'"):
        build.algorithm(load_config(tmp_path, "algo.name=compose", "algo.hold=['k1']"))
