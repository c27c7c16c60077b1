"""Scenarios around the phone."""

from errands.judge import Goal
from errands.scenario import Scenario
from errands.scenarios.calendar import add_event
from errands.scenarios.todo import choose_list
from errands.words import WORDS
from errands.world import World
from errands.written import apis, every, log_in, shown


def strangers(w: World, count: int) -> list[str]:
    """Numbers that nobody has and that are not blocked: those of the base world are above a million."""
    return [f"0{number}" for number in w.rng.sample(range(100_000, 1_000_000), count)]


def add_call(w: World, number: str, kind: str, days: float = 0, minutes: int = 0, *, hours: float = 0) -> None:
    """A call of the owner, so many days and hours ago."""
    w.add("phone_calls", owner=w.owner.id, number=number, kind=kind, time=w.ago(days, hours), minutes=minutes)


def receive(w: World, number: str, text: str, hours: float) -> None:
    """An unread text message to the owner, so many hours ago."""
    row = {"number": number, "incoming": 1, "text": text, "time": w.ago(hours=hours), "read": 0}
    w.add("phone_messages", owner=w.owner.id, **row)


class TextSomeone(Scenario, split="train", difficulty=1):
    """Send a text message to someone."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others())
        text = w.rng.choice(WORDS["short_texts"])
        goal = Goal(w, name=person.name, text=text)
        goal.do("phone.send_message", number=person.phone, text=text)
        return goal

    def solve(self, name: str, text: str) -> None:
        # I look up {name} in the contacts to get the phone number.
        log_in("contacts", "phone")
        found = shown(apis.contacts.search(query=name))
        # Found. Now I send the text to this number.
        print(apis.phone.send_message(number=found[0]["phone"], text=text))
        # The text is sent.


class DeleteVoicemailOf(Scenario, split="train", difficulty=1):
    """Delete the voicemail of someone."""

    def prepare(self, w: World) -> Goal:
        mails = w.all("SELECT id, number FROM phone_voicemails WHERE owner = ? ORDER BY id", w.owner.id)
        chosen = w.rng.choice(mails)
        goal = Goal(w, name=next(p.name for p in w.people if p.phone == chosen["number"]))
        goal.do("phone.delete_voicemail", voicemail_id=chosen["id"])
        return goal

    def solve(self, name: str) -> None:
        # I look up {name} in the contacts to get the phone number.
        log_in("contacts", "phone")
        found = shown(apis.contacts.search(query=name))
        # Now I look for the voicemail from this number.
        mails = apis.phone.list_voicemails(page_size=20)
        mails = shown([v for v in mails if v["number"] == found[0]["phone"]])
        # There is one. I delete it.
        print(apis.phone.delete_voicemail(voicemail_id=mails[0]["id"]))
        # The voicemail is deleted.


class BlockLastCaller(Scenario, split="dev", difficulty=1):
    """Block the number of the last missed call."""

    def prepare(self, w: World) -> Goal:
        number, answered = strangers(w, 2)
        add_call(w, number, "missed", hours=2)
        add_call(w, answered, "incoming", hours=1, minutes=3)
        goal = Goal(w)
        goal.do("phone.block", number=number)
        return goal

    def solve(self) -> None:
        # The newest missed call comes first, so I need only one.
        found = shown(apis.phone.list_calls(kind="missed", page_size=1))
        # This is the last one. I block its number.
        print(apis.phone.block(number=found[0]["number"]))
        # The number is blocked.


class LastTextTime(Scenario, split="validation", difficulty=1):
    """Tell the time that someone proposed in their last text."""

    def prepare(self, w: World) -> Goal:
        people = w.rng.sample(w.others(), 2)
        times = [f"{w.rng.randrange(20, 23)}:{minute}" for minute in w.rng.sample(range(11, 59), 2)]
        for person, time in zip(people, times, strict=True):
            text = w.rng.choice(("Let us meet at {} by the bridge", "See you at {} then", "Is {} fine with you?"))
            receive(w, person.phone, text.format(time), hours=2)
        goal = Goal(w, name=people[0].name)
        goal.answer = times[0]
        return goal

    def solve(self, name: str) -> None:
        # I look up {name} in the contacts to get the phone number.
        log_in("contacts", "phone")
        found = shown(apis.contacts.search(query=name))
        # Now I read the texts with this number. The newest comes first.
        texts = apis.phone.show_conversation(number=found[0]["phone"])
        said = shown([t["text"] for t in texts if t["incoming"]][0])
        # I answer with the time in the text.
        apis.owner.complete_task(answer="".join(c for c in said if c.isdigit() or c == ":"))


class TextMissedCallers(Scenario, split="train", difficulty=2):
    """Text those contacts whose calls were missed today."""

    def prepare(self, w: World) -> Goal:
        callers = w.rng.sample(w.others(), w.rng.randrange(2, 5))
        for place, number in enumerate([*(p.phone for p in callers), callers[0].phone, *strangers(w, 1)]):
            add_call(w, number, "missed", hours=0.5 + place)
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

    def solve(self, text: str) -> None:
        # I collect the missed calls from all pages and keep those from today.
        log_in("contacts", "phone")
        today = apis.owner.show_time()["now"][:10]
        missed = every(apis.phone.list_calls(kind="missed"))
        numbers = shown(sorted({c["number"] for c in missed if c["time"][:10] == today}))
        # I keep the numbers that are in the contacts.
        known = shown([n for n in numbers if apis.contacts.search(query=n)])
        # Each of them gets the text once.
        for n in known:
            print(apis.phone.send_message(number=n, text=text))
        # All texts are sent.


class GuestsByText(Scenario, split="dev", difficulty=3):
    """Invite those who said yes by text to an event, and text the others."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(("friend", "colleague"))
        people = w.rng.sample(w.others(relation), 3)
        title = w.rng.choice(("Summer party", "Pizza night", "Chess evening", "Boat trip"))
        event = add_event(w, w.owner, title, f"{w.day(w.rng.randrange(4, 20))} 20:00")
        coming = people[: w.rng.randrange(1, 3)]
        for person in people:
            answers = ("Yes, I am in", "Yes!", "Yes, with pleasure") if person in coming else ("No, sorry", "I cannot")
            receive(w, person.phone, w.rng.choice(answers), hours=w.rng.choice((1, 2, 3)))
            receive(w, person.phone, w.rng.choice(("Yes, maybe", "No idea yet")), hours=26)
        text = w.rng.choice(("What a pity", "Next time then", "We will miss you"))
        goal = Goal(w, relation=relation, title=title, text=text)
        for person in people:
            if person in coming:
                goal.do("calendar.invite", event_id=event, email=person.email)
            else:
                goal.do("phone.send_message", number=person.phone, text=text)
        return goal

    def solve(self, relation: str, title: str, text: str) -> None:
        # I need the {relation}s from the contacts, and nobody else.
        log_in("contacts", "phone", "calendar")
        found = apis.contacts.search(query=relation, page_size=20)
        people = [c for c in found if c["relation"] == relation]
        print([c["name"] for c in people])
        # The newest text comes first. I take the first incoming one from each.
        for c in people:
            texts = apis.phone.show_conversation(number=c["phone"], page_size=20)
            c["said"] = [t["text"] for t in texts if t["incoming"]][0]
            print(c["name"], ":", c["said"])
        # Now I look for the event.
        events = shown(apis.calendar.list_upcoming(query=title))
        # Found. I invite those who said yes.
        for c in people:
            if c["said"].startswith("Yes"):
                print(apis.calendar.invite(event_id=events[0]["id"], email=c["email"]))
        # The others get the text.
        for c in people:
            if not c["said"].startswith("Yes"):
                print(apis.phone.send_message(number=c["phone"], text=text))
        # Everyone has an answer.


class VoicemailRound(Scenario, split="validation", difficulty=3):
    """Turn the voicemails of contacts into things to do, and get rid of those of strangers."""

    def prepare(self, w: World) -> Goal:
        w.run("DELETE FROM phone_voicemails WHERE owner = ?", w.owner.id)
        people, days = w.rng.sample(w.others(), 6), w.rng.sample(range(1, 40), 10)
        numbers = w.rng.sample([*(p.phone for p in people), *strangers(w, 4)], 10)
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

    def solve(self, day: str, name: str, due: str) -> None:
        # I collect the voicemails from all pages and keep the recent ones.
        log_in("contacts", "phone", "todo")
        listed = every(apis.phone.list_voicemails())
        mails = [v for v in listed if v["time"] >= day]
        print(len(mails))
        # The contacts tell me who left them.
        for v in mails:
            who = apis.contacts.search(query=v["number"])
            v["name"] = who[0]["name"] if who else ""
            print(v["number"], v["name"])
        # I need the id of the list {name}.
        lists = shown([x for x in apis.todo.list_lists() if x["name"] == name])
        # Known callers go on the list.
        for v in mails:
            if v["name"]:
                text = f"Call {v['name']}"
                apis.todo.add(list_id=lists[0]["id"], text=text, due=due)
        # For the others, I delete the voicemail and block the number.
        for v in mails:
            if not v["name"]:
                print(apis.phone.delete_voicemail(voicemail_id=v["id"]))
                print(apis.phone.block(number=v["number"]))
        # All voicemails are taken care of.
