"""Scenarios around the phone."""

from typing import Any

from errands.judge import Goal
from errands.scenario import Scenario
from errands.scenarios.calendar import add_event
from errands.scenarios.todo import choose_list
from errands.world import World
from errands.written import every, log_in


class TextSomeone(Scenario, split="train", difficulty=1):
    """Send a text message to someone."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others())
        text = w.rng.choice(
            ("Running late", "I am at home", "Train is delayed", "Dinner is ready", "See you at six", "Happy to help")
        )
        goal = Goal(w, name=person.name, text=text)
        goal.do("phone.send_message", number=person.phone, text=text)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, text: str) -> None:
        # I look up {name} in the contacts to get the phone number.
        contacts, phone = log_in("contacts", "phone")
        found = apis.contacts.search(query=name, access_token=contacts)
        print(found)
        # Found. Now I send the text to this number.
        print(apis.phone.send_message(number=found[0]["phone"], text=text, access_token=phone))
        # The text is sent.
        apis.owner.complete_task()


class DeleteVoicemailOf(Scenario, split="train", difficulty=1):
    """Delete the voicemail of someone."""

    def prepare(self, w: World) -> Goal:
        mails = w.all("SELECT id, number FROM phone_voicemails WHERE owner = ? ORDER BY id", w.owner.id)
        chosen = w.rng.choice(mails)
        goal = Goal(w, name=next(p.name for p in w.people if p.phone == chosen["number"]))
        goal.do("phone.delete_voicemail", voicemail_id=chosen["id"])
        return goal

    @staticmethod
    def solve(apis: Any, name: str) -> None:
        # I look up {name} in the contacts to get the phone number.
        contacts, phone = log_in("contacts", "phone")
        found = apis.contacts.search(query=name, access_token=contacts)
        print(found)
        # Now I look for the voicemail from this number.
        mails = apis.phone.list_voicemails(page_size=20, access_token=phone)
        mails = [v for v in mails if v["number"] == found[0]["phone"]]
        print(mails)
        # There is one. I delete it.
        print(apis.phone.delete_voicemail(voicemail_id=mails[0]["id"], access_token=phone))
        # The voicemail is deleted.
        apis.owner.complete_task()


class BlockLastCaller(Scenario, split="dev", difficulty=1):
    """Block the number of the last missed call."""

    def prepare(self, w: World) -> Goal:
        number, answered = _strangers(w, 2)
        _miss(w, number, hours=2)
        w.add("phone_calls", owner=w.owner.id, number=answered, kind="incoming", time=w.ago(hours=1), minutes=3)
        goal = Goal(w)
        goal.do("phone.block", number=number)
        return goal

    @staticmethod
    def solve(apis: Any) -> None:
        # The newest missed call comes first, so I need only one.
        phone = log_in("phone")
        found = apis.phone.list_calls(kind="missed", page_size=1, access_token=phone)
        print(found)
        # This is the last one. I block its number.
        print(apis.phone.block(number=found[0]["number"], access_token=phone))
        # The number is blocked.
        apis.owner.complete_task()


class LastTextTime(Scenario, split="validation", difficulty=1):
    """Tell the time that someone proposed in their last text."""

    def prepare(self, w: World) -> Goal:
        people = w.rng.sample(w.others(), 2)
        times = [f"{w.rng.randrange(20, 23)}:{minute}" for minute in w.rng.sample(range(11, 59), 2)]
        for person, time in zip(people, times, strict=True):
            text = w.rng.choice(("Let us meet at {} by the bridge", "See you at {} then", "Is {} fine with you?"))
            _receive(w, person.phone, text.format(time), hours=2)
        goal = Goal(w, name=people[0].name)
        goal.answer = times[0]
        return goal

    @staticmethod
    def solve(apis: Any, name: str) -> None:
        # I look up {name} in the contacts to get the phone number.
        contacts, phone = log_in("contacts", "phone")
        found = apis.contacts.search(query=name, access_token=contacts)
        print(found)
        # Now I read the texts with this number. The newest comes first.
        texts = apis.phone.show_conversation(number=found[0]["phone"], access_token=phone)
        said = [t["text"] for t in texts if t["incoming"]][0]
        print(said)
        # I answer with the time in the text.
        apis.owner.complete_task(answer="".join(c for c in said if c.isdigit() or c == ":"))


class TextMissedCallers(Scenario, split="train", difficulty=2):
    """Text those contacts whose calls were missed today."""

    def prepare(self, w: World) -> Goal:
        callers = w.rng.sample(w.others(), w.rng.randrange(2, 5))
        for place, number in enumerate([*(p.phone for p in callers), callers[0].phone, *_strangers(w, 1)]):
            _miss(w, number, hours=0.5 + place)
        goal = Goal(
            w, text=w.rng.choice(("I will call you tonight", "Sorry, I was out", "What is up?", "In a meeting"))
        )
        for row in w.all(
            "SELECT DISTINCT number FROM phone_calls WHERE owner = ?1 AND kind = 'missed' AND time >= ?2 "
            "AND number IN (SELECT phone FROM contacts WHERE owner = ?1)",
            *(w.owner.id, w.today),
        ):
            goal.do("phone.send_message", number=row["number"], text=goal.slots["text"])
        return goal

    @staticmethod
    def solve(apis: Any, text: str) -> None:
        # I collect the missed calls from all pages and keep those from today.
        contacts, phone = log_in("contacts", "phone")
        today = apis.owner.show_time()["now"][:10]
        missed = every(apis.phone.list_calls(kind="missed", access_token=phone))
        numbers = sorted({c["number"] for c in missed if c["time"][:10] == today})
        print(numbers)
        # I keep the numbers that are in the contacts.
        known = [n for n in numbers if apis.contacts.search(query=n, access_token=contacts)]
        print(known)
        # Each of them gets the text once.
        for n in known:
            print(apis.phone.send_message(number=n, text=text, access_token=phone))
        # All texts are sent.
        apis.owner.complete_task()


class GuestsByText(Scenario, split="dev", difficulty=3):
    """Invite those who said yes by text to an event, and text the others."""

    apis = (
        *("contacts.search", "phone.show_conversation", "phone.send_message"),
        *("calendar.list_upcoming", "calendar.invite"),
    )

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(("friend", "colleague"))
        people = w.rng.sample(w.others(relation), 3)
        title = w.rng.choice(("Summer party", "Pizza night", "Chess evening", "Boat trip"))
        event = add_event(w, w.owner, title, f"{w.day(w.rng.randrange(4, 20))} 20:00")
        coming = people[: w.rng.randrange(1, 3)]
        for person in people:
            answers = ("Yes, I am in", "Yes!", "Yes, with pleasure") if person in coming else ("No, sorry", "I cannot")
            _receive(w, person.phone, w.rng.choice(answers), hours=w.rng.choice((1, 2, 3)))
            _receive(w, person.phone, w.rng.choice(("Yes, maybe", "No idea yet")), hours=26)
        text = w.rng.choice(("What a pity", "Next time then", "We will miss you"))
        goal = Goal(w, relation=relation, title=title, text=text)
        for person in people:
            if person in coming:
                goal.do("calendar.invite", event_id=event, email=person.email)
            else:
                goal.do("phone.send_message", number=person.phone, text=text)
        return goal

    @staticmethod
    def solve(apis: Any, relation: str, title: str, text: str) -> None:
        # I need the {relation}s from the contacts, and nobody else.
        contacts, phone, calendar = log_in("contacts", "phone", "calendar")
        found = apis.contacts.search(query=relation, page_size=20, access_token=contacts)
        people = [c for c in found if c["relation"] == relation]
        print([c["name"] for c in people])
        # The newest text comes first. I take the first incoming one from each.
        for c in people:
            texts = apis.phone.show_conversation(number=c["phone"], page_size=20, access_token=phone)
            c["said"] = [t["text"] for t in texts if t["incoming"]][0]
            print(c["name"], ":", c["said"])
        # Now I look for the event.
        events = apis.calendar.list_upcoming(query=title, access_token=calendar)
        print(events)
        # Found. I invite those who said yes.
        for c in people:
            if c["said"].startswith("Yes"):
                print(apis.calendar.invite(event_id=events[0]["id"], email=c["email"], access_token=calendar))
        # The others get the text.
        for c in people:
            if not c["said"].startswith("Yes"):
                print(apis.phone.send_message(number=c["phone"], text=text, access_token=phone))
        # Everyone has an answer.
        apis.owner.complete_task()


class VoicemailRound(Scenario, split="validation", difficulty=3):
    """Turn the voicemails of contacts into things to do, and get rid of those of strangers."""

    def prepare(self, w: World) -> Goal:
        w.run("DELETE FROM phone_voicemails WHERE owner = ?", w.owner.id)
        people, days = w.rng.sample(w.others(), 6), w.rng.sample(range(1, 40), 10)
        numbers = w.rng.sample([*(p.phone for p in people), *_strangers(w, 4)], 10)
        left = {
            number: w.add(
                "phone_voicemails",
                **{"owner": w.owner.id, "number": number, "time": w.ago(ago), "seconds": 9, "text": "It is me."},
            )
            for number, ago in zip(numbers, days, strict=True)
        }
        border = sorted(days)[6]
        list_name, list_id = choose_list(w)
        goal = Goal(w, day=w.day(-border), name=list_name, due=w.day(w.rng.randrange(1, 9)))
        for number, ago in zip(numbers, days, strict=True):
            if ago <= border:
                who = next((p for p in people if p.phone == number), None)
                if who is not None:
                    goal.do("todo.add", list_id=list_id, text=f"Call {who.name}", due=goal.slots["due"])
                else:
                    goal.do("phone.delete_voicemail", voicemail_id=left[number])
                    goal.do("phone.block", number=number)
        return goal

    @staticmethod
    def solve(apis: Any, day: str, name: str, due: str) -> None:
        # I collect the voicemails from all pages and keep the recent ones.
        contacts, phone, todo = log_in("contacts", "phone", "todo")
        listed = every(apis.phone.list_voicemails(access_token=phone))
        mails = [v for v in listed if v["time"] >= day]
        print(len(mails))
        # The contacts tell me who left them.
        for v in mails:
            who = apis.contacts.search(query=v["number"], access_token=contacts)
            v["name"] = who[0]["name"] if who else ""
            print(v["number"], v["name"])
        # I need the id of the list {name}.
        lists = [x for x in apis.todo.list_lists(access_token=todo) if x["name"] == name]
        print(lists)
        # Known callers go on the list.
        for v in mails:
            if v["name"]:
                text = f"Call {v['name']}"
                apis.todo.add(list_id=lists[0]["id"], text=text, due=due, access_token=todo)
        # For the others, I delete the voicemail and block the number.
        for v in mails:
            if not v["name"]:
                print(apis.phone.delete_voicemail(voicemail_id=v["id"], access_token=phone))
                print(apis.phone.block(number=v["number"], access_token=phone))
        # All voicemails are taken care of.
        apis.owner.complete_task()


def _strangers(w: World, count: int) -> list[str]:
    """Numbers that nobody has and that are not blocked: those of the base world are above a million."""
    return [f"0{number}" for number in w.rng.sample(range(100_000, 1_000_000), count)]


def _miss(w: World, number: str, hours: float) -> None:
    w.add("phone_calls", owner=w.owner.id, number=number, kind="missed", time=w.ago(hours=hours), minutes=0)


def _receive(w: World, number: str, text: str, hours: float) -> None:
    row = {"number": number, "incoming": 1, "text": text, "time": w.ago(hours=hours), "read": 0}
    w.add("phone_messages", owner=w.owner.id, **row)
