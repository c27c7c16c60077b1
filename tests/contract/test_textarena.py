"""TextArena, the real one, in its own virtualenv."""

import asyncio

import pytest

from longloop import build, config
from longloop.diagnose.trial import players, violations
from longloop.envs.play import Played, Script, play
from longloop.types import UserError


def world(**options: object) -> build.Environments:
    return build.world(config.Config.model_validate({"env": {"name": "textarena", **options}}))


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        world(count=1).tasks("dev")
    except UserError as error:
        pytest.skip(str(error))


def played(place: build.Environments, number: int, *actions: str) -> Played:
    return asyncio.run(play(place.make(), place.tasks("train")[number], Script(actions)))


HANOI = ["A C", "[A B]", "I move [C B]", "A C", "B A", "B C", "A C"]


def test_hanoi_in_seven_moves_with_or_without_brackets():
    place = world()
    won = played(place, 0, *HANOI)
    assert (won.turns, won.outcome.reward, won.outcome.success) == (7, 1.0, True)
    assert "solved" in won.messages[-1].content
    heard = [message.content for message in won.messages if message.role == "user"]
    assert "three" not in heard[0] and "3 disks" in heard[0]
    assert all("3 disks" not in text and "[A B]" not in text for text in heard[1:]), "the rules are told once"
    assert played(place, 0, *HANOI[:3]).outcome.reward == 0.0, "a game that has not ended pays nothing"


def test_two_invalid_moves_in_a_row_end_a_game():
    place = world()
    lost = played(place, 0, "A C", "nonsense", "C A", "nonsense", "nonsense", "A C")
    assert (lost.turns, lost.outcome.reward, lost.outcome.info["reason"][:12]) == (5, 0.0, "Invalid Move")
    assert "invalid move" in lost.messages[5].content


def test_settings_and_partial_rewards():
    """Alone, the game's own pay: 1 of 2 disks at the right place when the turns are used up."""
    place = world(settings={"num_disks": 2, "max_turns": 3})
    turns = played(place, 0, "A B", "A C", "B A", "A B").outcome
    assert (turns.reward, turns.success, turns.info["paid"]) == (0.5, False, 0.5)


def test_a_seed_is_a_game_and_seats_alternate():
    place = world(game="TicTacToe-v0", players=2, count=4)
    tasks = place.tasks("train")
    assert [task.data["seat"] for task in tasks] == [0, 1, 0, 1]
    first, second = (asyncio.run(play(place.make(), task, Script([]))).messages[1].content for task in tasks[:2])
    assert "You are Player 0" in first and "placed" not in first
    assert "You are Player 1" in second and "Player 0 placed" in second, "the opponent has moved"

    async def at_random(task):
        env = place.make()
        return await play(env, task, (await players(env, task))["random"])

    attempts = [asyncio.run(at_random(task)) for task in tasks]
    assert [asyncio.run(at_random(task)) for task in tasks] == attempts
    assert {attempt.outcome.reward for attempt in attempts} <= {0.0, 0.5, 1.0}
    assert all(attempt.outcome.info["reason"] for attempt in attempts)


def test_a_win_a_draw_and_a_loss_against_an_opponent():
    tasks = (place := world(game="TicTacToe-v0", players=2)).tasks("train")
    ends = [
        asyncio.run(play(place.make(), tasks[number], TicTacToe(best))).outcome
        for number, best in ((0, True), (25, True), (1, False))
    ]
    assert [(end.info["paid"], end.reward, end.success) for end in ends] == [
        (1.0, 1.0, True),
        (0.0, 0.5, False),
        (-1.0, 0.0, False),
    ]


class TicTacToe:
    """Takes the middle and what completes a row, or the first free square."""

    LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]

    def __init__(self, best: bool) -> None:
        self._best = best

    def act(self, messages):
        rows = messages[-1].content.rpartition("Current Board:")[2].partition("Available")[0]
        board = [cell.strip() for row in rows.split("---+---+---") for cell in row.split("|")]
        free = [int(cell) for cell in board if cell.isdigit()]
        lines = [[board[place] for place in line] for line in self.LINES]
        wins = [
            int(cell)
            for line in lines
            if len({*line}) == 2
            for cell in line
            if cell.isdigit() and line.count(cell) == 1
        ]
        pairs = [cell for cell in wins if any(str(cell) in line and len({*line} - {str(cell)}) == 1 for line in lines)]
        choice = [*pairs, *([4] if 4 in free else []), *free] if self._best else free
        return f"[{choice[0]}]"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"game": "Chess960-v7"}, "not found in registry"),
        ({"game": "TicTacToe-v0"}, "number of players has to be 2"),
        ({"settings": {"pegs": 4}}, "unexpected keyword argument 'pegs'"),
        ({"game": "Briscola-v0", "players": 2}, "finds no legal move"),
    ],
)
def test_bad_options_are_refused(options, complaint):
    with pytest.raises(UserError, match=complaint):
        world(**options).tasks("train")


@pytest.mark.parametrize(("game", "alone"), [("FrozenLake-v0-random", 1), ("KuhnPoker-v0", 2)])
def test_any_text_is_an_action(game, alone):
    place = world(game=game, players=alone, count=2)
    assert asyncio.run(violations(place.guarded(60), place.tasks("train")[0])) == []
