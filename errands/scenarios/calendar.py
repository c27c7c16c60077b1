"""Scenarios around the calendar."""

from collections.abc import Mapping
from typing import Any

from errands.judge import Goal
from errands.people import CIRCLES, Person
from errands.scenario import Scenario
from errands.scenarios.todo import add_item, chores, owned_lists
from errands.words import WORDS
from errands.world import World
from errands.written import apis, every, shown

_TITLES = WORDS["event_titles"]
"""Titles that no event of a new world has."""


def add_event(w: World, organiser: Person, title: str, start: str, guests: dict[Person, str] | None = None) -> int:
    """Put an event with guests and their answers into the world; its id."""
    minutes = w.rng.choice((20, 30, 45))
    event = w.add("calendar_events", owner=organiser.id, title=title, start=start, minutes=minutes)
    for guest, answer in (guests or {}).items():
        w.add("calendar_guests", event_id=event, guest=guest.id, answer=answer)
    return event


class MoveEvent(Scenario, split="train", difficulty=1):
    """Move an event to another time."""

    def prepare(self, w: World) -> Goal:
        title, offset = w.rng.choice(_TITLES), w.rng.randrange(1, 20)
        event = add_event(w, w.owner, title, f"{w.day(offset)} 12:50")
        day = w.day(offset + w.rng.randrange(1, 9))
        time = f"{w.rng.randrange(8, 20):02}:{w.rng.choice(('00', '15', '30', '45'))}"
        goal = Goal(w, title=title, day=day, time=time)
        goal.do("calendar.update", event_id=event, start=f"{day} {time}")
        return goal

    def solve(self, title: str, day: str, time: str) -> None:
        # I search for the event.
        found = shown(apis.calendar.search(query=title))
        # Found. Now I move it.
        print(apis.calendar.update(event_id=found[0]["id"], start=f"{day} {time}"))
        # The event is moved.


class NextMeeting(Scenario, split="train", difficulty=1):
    """Say when the owner next meets someone."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others(*CIRCLES))
        for title in w.rng.sample(_TITLES, 2):
            start = f"{w.day(w.rng.randrange(1, 20))} {w.rng.choice(('09:50', '12:50', '16:40'))}"
            add_event(w, w.owner, title, start, {person: "accepted"})
        goal = Goal(w, name=person.name)
        there = "EXISTS (SELECT 1 FROM calendar_guests WHERE event_id = e.id AND guest = ?{})"
        goal.answer = w.value(
            f"SELECT min(start) FROM calendar_events e WHERE start > ? AND (owner = ? OR {there.format('')}) "
            f"AND (owner = ? OR {there.format(' AND answer = ?')})",
            *(w.moment, person.id, person.id, w.owner.id, w.owner.id, "accepted"),
        )
        return goal

    def solve(self, name: str) -> None:
        # I list the upcoming events with {name}. The next one comes first.
        found = apis.calendar.list_upcoming(query=name)
        print([x["start"] for x in found])
        # I answer with the start of the first event.
        apis.owner.complete_task(answer=found[0]["start"])


class RemindMe(Scenario, split="validation", difficulty=1):
    """Add a reminder to an event."""

    def prepare(self, w: World) -> Goal:
        title, minutes = w.rng.choice(_TITLES), w.rng.choice((5, 20, 25, 40, 90, 120))
        event = add_event(w, w.owner, title, f"{w.day(w.rng.randrange(1, 20))} 12:50")
        goal = Goal(w, title=title, minutes=minutes)
        goal.do("calendar.add_reminder", event_id=event, minutes_before=minutes)
        return goal

    def solve(self, title: str, minutes: int) -> None:
        # I search for the event.
        found = shown(apis.calendar.search(query=title))
        # Found. Now I add the reminder.
        print(apis.calendar.add_reminder(event_id=found[0]["id"], minutes_before=minutes))
        # The reminder is set.


class InviteCircle(Scenario, split="train", difficulty=2):
    """Invite the people with a relation to an event."""

    who = {
        "both my flatmates": "flatmate",
        "all my friends": "friend",
        "all my colleagues (but not my manager)": "colleague",
        "my manager": "manager",
        "my sister": "sister",
        "my father": "father",
    }

    def prepare(self, w: World) -> Goal:
        title, who = w.rng.choice(_TITLES), w.rng.choice(list(self.who))
        event = add_event(w, w.owner, title, f"{w.day(w.rng.randrange(1, 20))} 12:50")
        goal = Goal(w, who=who, title=title)
        for person in w.others(self.who[who]):
            goal.do("calendar.invite", event_id=event, email=person.email)
        return goal

    def understood(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        return {"relation": self.who[slots["who"]]}

    def solve(self, relation: str, title: str) -> None:
        # I look for every {relation} in the contacts.
        cards = apis.contacts.search(query=relation, page_size=20)
        emails = shown([x["email"] for x in cards if x["relation"] == relation])
        # Now I search for the event.
        found = shown(apis.calendar.search(query=title))
        # I invite each of them.
        for email in emails:
            print(apis.calendar.invite(event_id=found[0]["id"], email=email))
        # Everyone is invited.


class AnswerInvitations(Scenario, split="dev", difficulty=2):
    """Accept the invitations of some and decline those of everyone else."""

    who = {
        "my flatmates": ("flatmate",),
        "my friends": ("friend",),
        "my parents": ("mother", "father"),
        "my brother and my sister": ("brother", "sister"),
    }

    def prepare(self, w: World) -> Goal:
        who = w.rng.choice(list(self.who))
        near = w.others(*self.who[who])
        far = [person for person in w.others() if person not in near]
        hosts = [*w.rng.sample(near, 2), *w.rng.sample(far, 4)]
        for person, title in zip(w.rng.sample(hosts, len(hosts)), w.rng.sample(_TITLES, len(hosts)), strict=True):
            start = f"{w.day(w.rng.randrange(1, 20))} {w.rng.randrange(8, 20):02}:20"
            add_event(w, person, title, start, {w.owner: "open"})
        goal = Goal(w, who=who)
        unanswered = "SELECT event_id, owner FROM calendar_guests g JOIN calendar_events e ON e.id = event_id"
        for row in w.all(f"{unanswered} WHERE guest = ? AND answer = 'open' ORDER BY e.id", w.owner.id):
            answer = "accept" if w.people[row["owner"] - 1] in near else "decline"
            goal.do(f"calendar.{answer}", event_id=row["event_id"])
        return goal

    def understood(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        return {"relations": list(self.who[slots["who"]])}

    def solve(self, who: str, relations: list[str]) -> None:
        # I look up {who} in the contacts.
        cards = every(apis.contacts.search(query=""))
        names = shown([x["name"] for x in cards if x["relation"] in relations])
        # I collect all open invitations before I answer any, because answering changes the pages.
        invitations = every(apis.calendar.list_invitations())
        print([(x["id"], x["organiser"]) for x in invitations])
        # I accept or decline each one, depending on who organises it.
        for x in invitations:
            if x["organiser"] in names:
                print(apis.calendar.accept(event_id=x["id"]))
            else:
                print(apis.calendar.decline(event_id=x["id"]))
        # All invitations are answered.


class DropDeclined(Scenario, split="validation", difficulty=2):
    """Remove the guests who have declined, and say who they were."""

    def prepare(self, w: World) -> Goal:
        title = w.rng.choice(_TITLES)
        guests = w.rng.sample(w.others(*CIRCLES), 8)
        said = w.rng.sample(["declined"] * w.rng.choice((2, 3)) + ["accepted"] * 3 + ["open"] * 3, 8)
        answers = dict(zip(guests, said, strict=True))
        add_event(w, w.owner, title, f"{w.day(-7)} 12:50", answers | dict.fromkeys(guests[:2], "declined"))
        event = add_event(w, w.owner, title, f"{w.day(w.rng.randrange(1, 20))} 12:50", answers)
        goal = Goal(w, title=title)
        declined = "SELECT guest FROM calendar_guests WHERE event_id = ? AND answer = 'declined' ORDER BY id"
        goal.answer = [w.name_of(row["guest"]) for row in w.all(declined, event)]
        for row in w.all(declined, event):
            goal.do("calendar.remove_guest", event_id=event, email=w.people[row["guest"] - 1].email)
        return goal

    def solve(self, title: str) -> None:
        # I look for the event among the upcoming ones.
        found = shown(apis.calendar.list_upcoming(query=title))
        # I go through its guests and pick those who declined.
        event = found[0]["id"]
        guests = every(apis.calendar.list_guests(event_id=event))
        out = [x for x in guests if x["answer"] == "declined"]
        print([x["name"] for x in out])
        # I remove them.
        for x in out:
            print(apis.calendar.remove_guest(event_id=event, email=x["email"]))
        # I answer with their names.
        apis.owner.complete_task(answer=[x["name"] for x in out])


class ClearDay(Scenario, split="validation", difficulty=3):
    """Clear a day: cancel own events, decline and text the organisers of others, postpone what is due."""

    def prepare(self, w: World) -> Goal:
        taken = "SELECT substr(start, 1, 10) AS day FROM calendar_guests g JOIN calendar_events e ON e.id = event_id"
        unclear = {row["day"] for row in w.all(f"{taken} WHERE guest = ? AND answer = 'open'", w.owner.id)}
        day = w.rng.choice([w.day(n) for n in range(2, 15) if w.day(n) not in unclear])
        hosts = w.rng.sample(w.others(*CIRCLES), 3)
        organisers = [w.owner, w.owner, *hosts]
        times = w.rng.sample(("08:10", "09:50", "12:50", "16:40", "20:00", "21:00"), 5)
        for organiser, title, time in zip(organisers, w.rng.sample(_TITLES, 5), times, strict=True):
            guest = hosts[0] if organiser is w.owner else w.owner
            add_event(w, organiser, title, f"{day} {time}", {guest: "accepted"})
        lists = list(owned_lists(w).values())
        for text, due in zip(chores(w, 4), (day, day, w.today, None), strict=True):
            add_item(w, w.rng.choice(lists), text, due=due)
        text = w.rng.choice(("Sorry, I cannot come", "I have to stay at home that day", "Please go ahead without me"))
        goal = Goal(w, day=day, text=text, later=w.day(w.rng.randrange(16, 30)))
        mine = "SELECT id FROM calendar_events WHERE owner = ? AND substr(start, 1, 10) = ? ORDER BY id"
        for row in w.all(mine, w.owner.id, day):
            goal.do("calendar.cancel", event_id=row["id"])
        theirs = "SELECT e.id, owner FROM calendar_guests g JOIN calendar_events e ON e.id = event_id"
        invited = w.all(
            f"{theirs} WHERE guest = ? AND answer = 'accepted' AND substr(start, 1, 10) = ?", w.owner.id, day
        )
        for row in invited:
            goal.do("calendar.decline", event_id=row["id"])
        for host in sorted({row["owner"] for row in invited}):
            goal.do("phone.send_message", number=w.people[host - 1].phone, text=text)
        for row in w.all("SELECT id FROM todo_items WHERE owner = ? AND NOT done AND due = ?", w.owner.id, day):
            goal.do("todo.update", item_id=row["id"], due=goal.slots["later"])
        return goal

    def solve(self, day: str, text: str, later: str) -> None:
        # I look at the events of that day and at my owner's name.
        me = apis.owner.show_profile()["name"]
        events = apis.calendar.list_day(day=day)
        print(me, [(x["id"], x["organiser"]) for x in events])
        # I cancel the owner's events and decline the others, and I remember who organises those.
        hosts = []
        for x in events:
            if x["organiser"] == me:
                apis.calendar.cancel(event_id=x["id"])
            else:
                apis.calendar.decline(event_id=x["id"])
                hosts.append(x["organiser"])
        hosts = shown(sorted(set(hosts)))
        # I look up their phone numbers.
        numbers = []
        for name in hosts:
            cards = apis.contacts.search(query=name)
            numbers += [x["phone"] for x in cards if x["name"] == name]
        print(numbers)
        # I text each of them once.
        for number in numbers:
            apis.phone.send_message(number=number, text=text)
        # I collect what is due by that day and keep what is due on it.
        items = every(apis.todo.list_due(until=day))
        due = [x for x in items if x["due"] == day]
        print([x["text"] for x in due])
        # I postpone these items.
        for x in due:
            apis.todo.update(item_id=x["id"], due=later)
        # The day is clear.
