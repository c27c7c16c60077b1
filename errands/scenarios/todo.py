"""Scenarios around to-do lists."""

from errands.judge import Goal
from errands.scenario import Scenario
from errands.words import WORDS
from errands.world import World
from errands.written import apis, every, log_in, shown

_VERBS = WORDS["chore_verbs"]
_THINGS = WORDS["chore_things"]
_FOODS = WORDS["foods"]


def chores(w: World, count: int) -> list[str]:
    """Things to do that are in no to-do list or note of a new world."""
    things = w.rng.sample(_THINGS, count)
    return [f"{w.rng.choice(_VERBS)} the {thing}" for thing in things]


def owned_lists(w: World) -> dict[str, int]:
    """The owner's lists: name and id."""
    return {row["name"]: row["id"] for row in w.all("SELECT * FROM todo_lists WHERE owner = ?", w.owner.id)}


def choose_list(w: World) -> tuple[str, int]:
    """The name and id of one of the owner's lists."""
    return w.rng.choice(list(owned_lists(w).items()))


def add_item(w: World, list_id: int, text: str, due: str | None = None, done: bool = False, **more: str) -> int:
    """Put an item on one of the owner's lists; its id."""
    more = {"priority": "normal"} | more
    done_on = w.day(-2) if done else None
    return w.add(
        "todo_items", owner=w.owner.id, list_id=list_id, text=text, due=due, done=int(done), done_on=done_on, **more
    )


class AddToList(Scenario, split="train", difficulty=1):
    """Add an item to a list."""

    def prepare(self, w: World) -> Goal:
        name, list_id = choose_list(w)
        text = chores(w, 1)[0]
        if name == "Groceries":
            text = f"{w.rng.randrange(2, 20)} {w.rng.choice(_FOODS)}"
        goal = Goal(w, text=text, list_name=name)
        goal.do("todo.add", list_id=list_id, text=text)
        return goal

    def solve(self, text: str, list_name: str) -> None:
        # I need the id of the {list_name} list.
        lists = shown(apis.todo.list_lists())
        # Now I add the item to {list_name}.
        here = [x["id"] for x in lists if x["name"] == list_name][0]
        print(apis.todo.add(list_id=here, text=text))
        # The item is added.


class TickOff(Scenario, split="train", difficulty=1):
    """Complete an item."""

    def prepare(self, w: World) -> Goal:
        text, *others = chores(w, 3)
        item = add_item(w, choose_list(w)[1], text)
        for other in others:
            add_item(w, choose_list(w)[1], other)
        goal = Goal(w, text=text)
        goal.do("todo.complete", item_id=item)
        return goal

    def solve(self, text: str) -> None:
        # I search for the item.
        found = shown(apis.todo.search(query=text))
        # Found, and it is still open. I mark it as done.
        print(apis.todo.complete(item_id=found[0]["id"]))
        # The item is done.


class NewDueDate(Scenario, split="dev", difficulty=1):
    """Change when an item is due."""

    def prepare(self, w: World) -> Goal:
        text, day = chores(w, 1)[0], w.day(w.rng.randrange(10, 40))
        item = add_item(w, choose_list(w)[1], text, due=w.day(w.rng.randrange(1, 9)))
        goal = Goal(w, text=text, day=day)
        goal.do("todo.update", item_id=item, due=day)
        return goal

    def solve(self, text: str, day: str) -> None:
        # I search for the item.
        found = shown(apis.todo.search(query=text))
        # Found. Now I change its due date.
        print(apis.todo.update(item_id=found[0]["id"], due=day))
        # The due date is changed.


class PostponeOverdue(Scenario, split="train", difficulty=2):
    """Give the overdue items of a list a new due date."""

    def prepare(self, w: World) -> Goal:
        name, list_id = choose_list(w)
        texts = chores(w, 5)
        dues = [w.day(-w.rng.randrange(1, 9)), w.day(-1), w.today, w.day(w.rng.randrange(1, 9)), None]
        for text, due in zip(texts, w.rng.sample(dues, len(dues)), strict=True):
            add_item(w, list_id, text, due=due)
        goal = Goal(w, list_name=name, day=w.day(w.rng.randrange(3, 20)))
        late = "SELECT id FROM todo_items WHERE list_id = ? AND done = 0 AND due < ? ORDER BY id"
        for row in w.all(late, list_id, w.today):
            goal.do("todo.update", item_id=row["id"], due=goal.slots["day"])
        return goal

    def solve(self, list_name: str, day: str) -> None:
        # I need the id of the {list_name} list.
        lists = shown(apis.todo.list_lists())
        # I go through its open items and pick those due before today.
        here = [x["id"] for x in lists if x["name"] == list_name][0]
        items = every(apis.todo.list_items(list_id=here))
        today = apis.owner.show_time()["now"][:10]
        late = [x for x in items if x["due"] and x["due"] < today]
        print(today, [(x["text"], x["due"]) for x in late])
        # These are overdue. I postpone each of them.
        for x in late:
            apis.todo.update(item_id=x["id"], due=day)
        # All overdue items have a new due date.


class MergeLists(Scenario, split="validation", difficulty=2):
    """Move the open items of a list to another one and delete it."""

    def prepare(self, w: World) -> Goal:
        lists = owned_lists(w)
        old, new = w.rng.sample(sorted(lists), 2)
        for text in chores(w, 3):
            add_item(w, lists[old], text)
        goal = Goal(w, old=old, new=new)
        for row in w.all("SELECT id FROM todo_items WHERE list_id = ? AND done = 0 ORDER BY id", lists[old]):
            goal.do("todo.move", item_id=row["id"], list_id=lists[new])
        goal.do("todo.delete_list", list_id=lists[old])
        return goal

    def solve(self, old: str, new: str) -> None:
        # I need the ids of both lists.
        lists = shown(apis.todo.list_lists())
        # I collect the open items of {old} before I move any, because moving changes the pages.
        source = [x["id"] for x in lists if x["name"] == old][0]
        target = [x["id"] for x in lists if x["name"] == new][0]
        items = every(apis.todo.list_items(list_id=source))
        print([x["text"] for x in items])
        # I move each one to {new}. Then I can delete {old}.
        for x in items:
            apis.todo.move(item_id=x["id"], list_id=target)
        print(apis.todo.delete_list(list_id=source))
        # The list is gone and its open items are kept.


class BlockTime(Scenario, split="dev", difficulty=3):
    """Put the important items of a list into the calendar, with reminders."""

    def prepare(self, w: World) -> Goal:
        name, list_id = choose_list(w)
        texts = chores(w, 7)
        high = [w.day(w.rng.randrange(1, 20)), w.day(w.rng.randrange(1, 20)), w.today, w.day(-3), None]
        for text, due in zip(texts, w.rng.sample(high, len(high)), strict=False):
            add_item(w, list_id, text, due=due, priority="high")
        add_item(w, list_id, texts[5], due=w.day(4))
        add_item(w, list_id, texts[6], due=w.day(5), done=True, priority="high")
        time, minutes = f"{w.rng.randrange(6, 8):02}:{w.rng.choice((10, 15, 20))}", w.rng.choice((20, 25, 40))
        goal = Goal(w, list_name=name, time=time, minutes=minutes, before=w.rng.choice((5, 10, 20)))
        picked = "SELECT text, due FROM todo_items WHERE list_id = ? AND NOT done AND priority = 'high' AND due > ?"
        for row in w.all(f"{picked} ORDER BY id", list_id, w.today):
            start = f"{row['due']} {time}"
            made = goal.do("calendar.create", title=row["text"], start=start, minutes=minutes)
            goal.do("calendar.add_reminder", event_id=made["event_id"], minutes_before=goal.slots["before"])
        return goal

    # The longest call has its token written out: agents see where its line breaks.
    def solve(self, list_name: str, time: str, minutes: int, before: int) -> None:
        # I need the id of the {list_name} list.
        lists = shown(apis.todo.list_lists())
        # I collect its open items from all pages.
        here = [x["id"] for x in lists if x["name"] == list_name][0]
        items = every(apis.todo.list_items(list_id=here))
        print(len(items))
        # I keep those with high priority and a due date after today.
        today = apis.owner.show_time()["now"][:10]
        high = [x for x in items if x["priority"] == "high" and x["due"] and x["due"] > today]
        print(today, [(x["text"], x["due"]) for x in high])
        # I create an event with a reminder for each of them.
        calendar = log_in("calendar")
        for x in high:
            made = apis.calendar.create(
                title=x["text"], start=x["due"] + f" {time}", minutes=minutes, access_token=calendar
            )
            apis.calendar.add_reminder(event_id=made["event_id"], minutes_before=before)
            print(made)
        # All of them are in the calendar.
