"""The worked example: a whole task, done step by step, that comes before the agent's own as turns of the conversation.

It is played in the real world and session, so what it shows is what an agent sees. Its scenario is in no split.
"""

import functools
from collections.abc import Sequence

from errands.apps import make_world
from errands.judge import Goal
from errands.scenario import Scenario
from errands.session import Session
from errands.world import World
from errands.written import apis, every
from longloop import Message
from longloop.envs.react import react

_SEED = "example"
_NEXT = "The example ends here. Now your own task, in a new session: variables and logins are gone."


class PinNewest(Scenario):
    """Pin the newest note with a tag, and count them."""

    split, difficulty = "example", 2
    apis = ("notes.search", "notes.pin")
    phrasings = ("Pin my newest note tagged '{tag}', and tell me how many of my notes have that tag.",)

    def prepare(self, w: World) -> Goal:
        counted = "SELECT tag FROM notes_tags t JOIN notes n ON n.id = note_id WHERE owner = ? AND NOT archived"
        tag = w.value(f"{counted} GROUP BY tag ORDER BY count(*) DESC, tag", w.owner.id)
        goal = Goal(w, tag=tag)
        found = w.all(
            "SELECT n.id FROM notes n JOIN notes_tags t ON note_id = n.id WHERE owner = ? AND tag = ? AND NOT archived "
            "ORDER BY created DESC, n.id",
            *(w.owner.id, tag),
        )
        goal.do("notes.pin", note_id=found[0]["id"])
        goal.answer = len(found)
        return goal

    def solve(self, tag: str) -> None:
        # I do not know what there is, so I list the apps first.
        print(apis.docs.list_apps())
        # Notes are in the notes app. I list what it can do.
        print(apis.docs.list_apis(app="notes"))
        # I need notes.search to find the notes and notes.pin to pin one. I read how to call them.
        print(apis.docs.show(api="notes.search"))
        print(apis.docs.show(api="notes.pin"))
        # I collect the notes tagged '{tag}' from all pages. The newest comes first.
        found = every(apis.notes.search(tag=tag))
        print(len(found), found[0])
        # I pin the first one.
        apis.notes.pin(note_id=found[0]["id"])
        # The newest note is pinned. The answer is how many there are.
        apis.owner.complete_task(answer=len(found))


def opening(world: World, instruction: str) -> str:
    """What the owner says first."""
    return f"I am {world.owner.name}. It is {world.now:%A, %Y-%m-%d %H:%M}. {instruction}"


def after_example(task: str) -> list[Message]:
    """The worked example, then the agent's own task."""
    *shown, last = _example()
    return [*shown, Message("user", f"{last.content}\n\n{_NEXT}\n{task}")]


@functools.cache
def _example() -> Sequence[Message]:
    kind, world = PinNewest(), make_world(_SEED)
    goal = kind.prepare(world)
    instruction = kind.phrasings[0].format(**goal.slots)
    session = Session(world)
    messages = [Message("user", opening(world, instruction))]
    for thought, code in kind.turns(**goal.slots):
        messages += [Message("assistant", react(thought, code)), Message("user", session.run(code))]
    session.close()
    world.close()
    return messages
