"""Where attempts are played, and what the replicas hear of it."""

import asyncio
import math
from types import SimpleNamespace
from typing import Any

from longloop.rollout import replica
from longloop.rollout.replica import LocalReplica, Rooms
from longloop.types import StopReason
from tests.support.worlds import TASKS, Env, Log, collect, rollouts


class Place:
    """A replica that notes what is played on it."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.now = self.most = 0
        self.busy = 0.0

    async def play(self, group: int, turns: int) -> None:
        self.groups.append(group)
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(turns):
            await asyncio.sleep(0)
        self.now -= 1


def played(places: list[Place], size: int, attempts: list[tuple[int, int]]) -> None:
    """Play attempts, each a group and a number of turns, in rooms on these places."""

    async def main() -> None:
        rooms: Any = Rooms(places, size)  # type: ignore[arg-type]

        async def one(group: int, turns: int) -> None:
            async with rooms.room(group) as place:
                await place.play(group, turns)

        await asyncio.gather(*(one(group, turns) for group, turns in attempts))

    asyncio.run(main())


def test_a_group_stays_together_and_groups_go_round():
    """Three groups on two places: whoever dealt out single attempts in turn would part them."""
    places = [Place(), Place()]
    played(places, 100, [(group, 5) for _ in range(3) for group in range(3)])
    assert sorted(places[0].groups) == [0, 0, 0, 2, 2, 2] and sorted(places[1].groups) == [1, 1, 1]
    assert all(place.busy > 0 for place in places)


def test_a_place_is_busy_from_its_first_attempt_to_its_last(monkeypatch):
    """Attempts side by side count once: the clock is read as the first begins and as the last ends, three times."""
    clock = iter([10.0, 13.0, 20.0, 21.0, 30.0, 30.5])
    monkeypatch.setattr(replica, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    place = Place()
    for _ in range(2):
        played([place], 2, [(0, 3), (1, 5)])
    assert place.busy == 3.0 + 1.0
    played([place], 2, [(0, 3)])
    assert place.busy == 3.0 + 1.0 + 0.5 and next(clock, None) is None


def test_no_place_gets_more_than_its_size_and_a_free_one_gets_the_next():
    """Two at a time on each; the groups of the first place take long, so the second plays all the others."""
    places = [Place(), Place()]
    played(places, 2, [(group, 200 if group in (0, 2) else 1) for group in range(10)])
    assert [place.most for place in places] == [2, 2]
    assert sorted(places[0].groups) == [0, 2] and len(places[1].groups) == 8


def test_a_place_that_cannot_play_all_of_its_groups_plays_so_many_at_a_time():
    """A free room elsewhere is of no use to a group that has begun here."""
    places = [Place(), Place()]
    played(places, 2, [(group, 3) for _ in range(5) for group in range(2)])
    assert [place.most for place in places] == [2, 2] and [len(place.groups) for place in places] == [5, 5]
    places = [Place(), Place()]
    played(places, 2, [(0, 3)] * 4 + [(1, 1)])
    assert [place.most for place in places] == [2, 1]


class Elsewhere(LocalReplica):
    """A replica that notes what it is told."""

    def __init__(self) -> None:
        self.cutoffs: list[float] = []
        self.released = 0

    def abandon_beyond(self, cutoff: float) -> None:
        self.cutoffs.append(cutoff)

    def release(self) -> None:
        self.released += 1


def test_replicas_hear_the_cutoff_and_the_end():
    """Two of four attempts decide the cutoff: twice their two turns of two tokens."""
    what = rollouts(lambda: Env(Log()), straggler_cutoff=0.5, min_scored=1)
    what.replicas = [Elsewhere(), Elsewhere()]
    groups = collect(what, TASKS[:2], k=2)
    assert all(one.stop is StopReason.FINISHED for group in groups for one in group.trajectories)
    for one in what.replicas:
        assert isinstance(one, Elsewhere)
        assert one.released == 1 and one.cutoffs[-1] == 2 * (2 * 2) and one.busy > 0
        assert all(cutoff in (math.inf, 2 * (2 * 2)) for cutoff in one.cutoffs)
    assert LocalReplica().busy == 0.0
