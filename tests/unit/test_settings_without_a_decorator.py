"""The fields of a method or a part are its settings, whether its class is decorated or not."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from longloop.algos.parts.choose import DropSmall
from longloop.algos.scaling_inter import ScalingInter


class Bare(ScalingInter):
    w: float = 3.0
    more: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Decorated(ScalingInter):
    w: float = 3.0
    more: list[int] = field(default_factory=list)


@pytest.mark.parametrize("method", [Bare, Decorated])
def test_fields_are_settings(method: Any) -> None:
    algo = method(w=1.0, k=4)
    assert (algo.w, algo.k, algo.more, algo.rounds) == (1.0, 4, [], [10, 20, 30])
    assert algo == method(w=1.0, k=4) != method(k=4) and replace(algo, w=3.0) == method(k=4)
    assert algo.more is not method().more
    assert [one.name for one in fields(method)][-2:] == ["w", "more"]
    with pytest.raises(TypeError):
        method(4)


@pytest.mark.parametrize("algo", [Bare(), Decorated(), ScalingInter()])
@pytest.mark.parametrize(
    "change",
    [lambda algo: setattr(algo, "k", 1), lambda algo: setattr(algo, "new", 1), lambda algo: delattr(algo, "every")],
)
def test_they_do_not_change(algo: Any, change: Callable[[Any], None]) -> None:
    before = replace(algo)
    with pytest.raises(FrozenInstanceError):
        change(algo)
    assert algo == before


def test_those_of_parts_are_given_by_place_too() -> None:
    class Part(DropSmall):
        more: float = 1.0

    @dataclass(frozen=True)
    class Again(DropSmall):
        more: float = 1.0

    for part in (Part, Again):
        assert (part(0.5, 2.0).below, part(0.5, 2.0).more, part().more) == (0.5, 2.0, 1.0)  # type: ignore[call-arg]
