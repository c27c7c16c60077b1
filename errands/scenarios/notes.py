"""Scenarios around notes."""

from errands.judge import Goal
from errands.scenario import Scenario
from errands.scenarios.todo import add_item, choose_list, chores
from errands.world import World
from errands.written import apis, every, shown

_NAMES = ("Attic", "Basement", "Picnic", "Harvest", "Carnival", "Regatta", "Jubilee", "Bazaar", "Orchard", "Fairground")


class AppendLine(Scenario, split="train", difficulty=1):
    """Add a line to a note."""

    def prepare(self, w: World) -> Goal:
        kept = w.all("SELECT id, title FROM notes WHERE owner = ? AND archived = 0 ORDER BY id", w.owner.id)
        note, line = w.rng.choice(kept), chores(w, 1)[0]
        goal = Goal(w, line=line, title=note["title"])
        goal.do("notes.append", note_id=note["id"], line=line)
        return goal

    def solve(self, line: str, title: str) -> None:
        # I search for the note.
        found = shown(apis.notes.search(query=title))
        # Found. Now I add the line.
        print(apis.notes.append(note_id=found[0]["id"], line=line))
        # The line is added.


class NoteIntoList(Scenario, split="train", difficulty=3):
    """Put the lines of a note on a to-do list, without those already there, and delete the note."""

    def prepare(self, w: World) -> Goal:
        name, list_id = choose_list(w)
        tasks, count = chores(w, 7), w.rng.randrange(5, 8)
        for text in tasks[:2]:
            add_item(w, list_id, text)
        add_item(w, list_id, tasks[2], done=True)
        lines = w.rng.sample(tasks[:count], count)
        title = f"{w.rng.choice(_NAMES)} tasks"
        note = w.add("notes", owner=w.owner.id, title=title, body="\n".join(lines), created=w.ago(days=2))
        goal = Goal(w, title=title, list_name=name)
        for line in lines:
            if line not in tasks[:2]:
                goal.do("todo.add", list_id=list_id, text=line)
        goal.do("notes.delete", note_id=note)
        return goal

    def solve(self, title: str, list_name: str) -> None:
        # I search for the note.
        found = shown(apis.notes.search(query=title))
        # Found. I read its lines.
        lines = shown(apis.notes.show(note_id=found[0]["id"])["body"].splitlines())
        # Now I need the id of the {list_name} list.
        lists = shown(apis.todo.list_lists())
        # I check which lines are not open there yet.
        here = [x["id"] for x in lists if x["name"] == list_name][0]
        items = every(apis.todo.list_items(list_id=here))
        there = [x["text"] for x in items]
        new = shown([x for x in lines if x not in there])
        # I add these and delete the note.
        for x in new:
            apis.todo.add(list_id=here, text=x)
        print(apis.notes.delete(note_id=found[0]["id"]))
        # The tasks are on the list.


class MinutesIntoTasks(Scenario, split="validation", difficulty=3):
    """Hand out the tasks in a note: mail others theirs, put the owner's on a list."""

    def prepare(self, w: World) -> Goal:
        name, list_id = choose_list(w)
        title = f"{w.rng.choice(_NAMES)} meeting"
        people = w.rng.sample(w.others("colleagues", "friends", "flatmates"), 3)
        people = [*people, people[0], w.owner, *([w.owner] if w.rng.random() < 0.5 else [])]
        tasks = chores(w, len(people))
        lines = list(zip(w.rng.sample(people, len(people)), tasks, strict=True))
        body = "\n".join(f"{person.name}: {task}" for person, task in lines)
        note = w.add("notes", owner=w.owner.id, title=title, body=body, created=w.ago(days=1))
        subject = f"{w.rng.choice(('Your task', 'For you', 'To do'))} from the meeting"
        goal = Goal(w, title=title, subject=subject, list_name=name)
        for person, task in lines:
            if person is w.owner:
                goal.do("todo.add", list_id=list_id, text=task)
            else:
                goal.do("mail.send", to=[person.email], subject=subject, body=task)
        goal.do("notes.archive", note_id=note)
        return goal

    def solve(self, title: str, subject: str, list_name: str) -> None:
        # I search for the note.
        found = shown(apis.notes.search(query=title))
        # I read its lines and look up my owner's name.
        lines = apis.notes.show(note_id=found[0]["id"])["body"].splitlines()
        me = apis.owner.show_profile()["name"]
        print(me, lines)
        # I look up the email address of everyone else in it.
        emails = {}
        for name in [x.split(": ")[0] for x in lines]:
            if name != me:
                cards = apis.contacts.search(query=name)
                emails[name] = [x["email"] for x in cards if x["name"] == name][0]
        print(emails)
        # For the owner's tasks I need the id of the list.
        lists = shown(apis.todo.list_lists())
        # Now I hand out the tasks, line by line.
        here = [x["id"] for x in lists if x["name"] == list_name][0]
        for x in lines:
            name, task = x.split(": ")
            if name == me:
                apis.todo.add(list_id=here, text=task)
            else:
                apis.mail.send(to=[emails[name]], subject=subject, body=task)
        # Finally, I archive the note.
        print(apis.notes.archive(note_id=found[0]["id"]))
        # Everyone has their tasks.
