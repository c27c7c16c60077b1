"""Scenarios around the address book."""

from collections.abc import Mapping
from typing import Any

from errands.judge import Goal, act
from errands.people import ALONE, Person
from errands.scenario import Scenario
from errands.scenarios.mail import mail_from
from errands.scenarios.todo import choose_list
from errands.words import WORDS
from errands.world import World
from errands.written import every, log_in

MONTHS = WORDS["months"]


class PhoneNumberOfSomeone(Scenario, split="train", difficulty=1):
    """Look up a phone number."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others())
        goal = Goal(w, name=person.name)
        goal.answer = person.phone
        return goal

    @staticmethod
    def solve(apis: Any, name: str) -> None:
        # I look up {name} in the contacts.
        contacts = log_in("contacts")
        found = apis.contacts.search(query=name, access_token=contacts)
        print(found)
        # Found. I answer with the phone number.
        apis.owner.complete_task(answer=found[0]["phone"])


class NewAddress(Scenario, split="train", difficulty=1):
    """Change a contact's address."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others("friends", "colleagues", "family"))
        street = f"{w.rng.randrange(100, 400)} {w.rng.choice(['Elm Street', 'Harbour Road', 'Castle Hill'])}"
        goal = Goal(w, name=person.name, street=street)
        goal.do("contacts.update", contact_id=_card(w, person), address=street)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, street: str) -> None:
        # I look up {name} in the contacts.
        contacts = log_in("contacts")
        found = apis.contacts.search(query=name, access_token=contacts)
        print(found)
        # Found. Now I change the address.
        print(apis.contacts.update(contact_id=found[0]["id"], address=street, access_token=contacts))
        # The address is updated.
        apis.owner.complete_task()


class NoteOnContact(Scenario, split="train", difficulty=1):
    """Write a note on the contact of someone with a relation to the owner."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(ALONE)
        note = w.rng.choice(
            ("Prefers tea", "Ring twice", "Allergic to nuts", "Call in the morning", "Has my spare key", "Likes jazz")
        )
        goal = Goal(w, relation=relation, note=note)
        goal.do("contacts.set_note", contact_id=_card(w, w.others(relation)[0]), note=note)
        return goal

    @staticmethod
    def solve(apis: Any, relation: str, note: str) -> None:
        # I look up the {relation} in the contacts.
        contacts = log_in("contacts")
        found = apis.contacts.search(query=relation, access_token=contacts)
        print(found)
        # Found. Now I write the note.
        print(apis.contacts.set_note(contact_id=found[0]["id"], note=note, access_token=contacts))
        # The note is saved.
        apis.owner.complete_task()


class RemoveFavourite(Scenario, split="validation", difficulty=1):
    """Take the only one of a relation off the favourites."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(("friend", "colleague", "flatmate"))
        chosen, *others = w.rng.sample(w.others(relation), len(w.others(relation)))
        for person in (chosen, *others, *w.rng.sample(w.others("family"), 2)):
            w.run("UPDATE contacts SET favourite = ? WHERE id = ?", person not in others, _card(w, person))
        goal = Goal(w, relation=relation)
        goal.do("contacts.set_favourite", contact_id=_card(w, chosen), favourite=False)
        return goal

    @staticmethod
    def solve(apis: Any, relation: str) -> None:
        # I look for the {relation} among the favourites.
        contacts = log_in("contacts")
        found = apis.contacts.list_favourites(access_token=contacts)
        found = [c for c in found if c["relation"] == relation]
        print(found)
        # Found. I take this contact off the favourites.
        print(apis.contacts.set_favourite(contact_id=found[0]["id"], favourite=False, access_token=contacts))
        # The contact is no longer a favourite.
        apis.owner.complete_task()


class ForwardToRelation(Scenario, split="train", difficulty=2):
    """Forward a mail to everyone of a relation."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(("flatmate", "colleague", "friend"))
        people = w.others(relation)
        right, wrong = w.rng.sample([p for p in w.others() if p not in people], 2)
        subject = w.rng.choice(("Street party", "Lost cat", "Flea market", "Open air cinema", "Spare sofa"))
        mail_from(w, wrong, subject, "Have you heard of it?", w.ago(hours=4))
        message = mail_from(w, right, subject, "This may interest you.", w.ago(hours=30))
        mail_from(w, right, f"{subject} over", "It is over.", w.ago(hours=3))
        text = w.rng.choice(("For your information", "What do you think?", "Have a look", "Just came in"))
        goal = Goal(w, subject=subject, name=right.name, relation=relation, text=text)
        goal.do("mail.forward", message_id=message, to=[p.email for p in people], body=text)
        return goal

    @staticmethod
    def solve(apis: Any, subject: str, name: str, relation: str, text: str) -> None:
        # I need the email addresses of all {relation}s.
        contacts, mail = log_in("contacts", "mail")
        found = apis.contacts.search(query=relation, page_size=20, access_token=contacts)
        to = [c["email"] for c in found if c["relation"] == relation]
        print(to)
        # Now I look for the email, by sender and exact subject.
        found = apis.mail.search(query=subject, sender=name, access_token=mail)
        found = [m for m in found if m["subject"] == subject]
        print(found)
        # Found. I forward it.
        print(apis.mail.forward(message_id=found[0]["id"], to=to, body=text, access_token=mail))
        # The email is forwarded.
        apis.owner.complete_task()


class FinishDraft(Scenario, split="validation", difficulty=2):
    """Send a draft to someone else than it was meant for."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(ALONE)
        subject, other = w.rng.sample(("Next steps", "My proposal", "The contract", "Opening hours", "A reminder"), 2)
        for about in w.rng.sample((subject, other, f"{subject} again"), 3):
            wrong = w.rng.choice([p for p in w.others() if p.relation != relation])
            made = act(w, "mail.create_draft", {"to": [wrong.email], "subject": about, "body": "As we discussed."})
            w.run("UPDATE mail_messages SET time = ? WHERE id = ?", w.ago(w.rng.randrange(1, 90)), made["draft_id"])
        drafts = "SELECT id FROM mail_messages WHERE owner = ? AND folder = 'drafts' AND subject = ?"
        goal = Goal(w, subject=subject, relation=relation)
        draft = w.value(drafts, w.owner.id, subject)
        goal.do("mail.update_draft", draft_id=draft, to=[w.others(relation)[0].email])
        goal.do("mail.send_draft", draft_id=draft)
        return goal

    @staticmethod
    def solve(apis: Any, subject: str, relation: str) -> None:
        # I look up the {relation} in the contacts to get the email address.
        contacts, mail = log_in("contacts", "mail")
        found = apis.contacts.search(query=relation, access_token=contacts)
        print(found)
        # Now I look for the draft on all pages.
        listed = every(apis.mail.list_drafts(access_token=mail))
        drafts = [d for d in listed if d["subject"] == subject]
        print(drafts)
        # Found. I change its recipient and send it.
        draft = drafts[0]["id"]
        print(apis.mail.update_draft(draft_id=draft, to=[found[0]["email"]], access_token=mail))
        print(apis.mail.send_draft(draft_id=draft, access_token=mail))
        # The draft is sent.
        apis.owner.complete_task()


class BirthdayRound(Scenario, split="train", difficulty=3):
    """Put the birthdays of a month into calendar and to-do list, but not those of the family."""

    apis = ("contacts.list_birthdays", "todo.list_lists", "todo.add", "calendar.create")

    def prepare(self, w: World) -> Goal:
        relation, month = w.rng.choice(("friend", "colleague")), w.rng.randrange(1, 13)
        meant = w.rng.sample(w.others(relation), w.rng.randrange(2, 4))
        for person in (*meant, *w.rng.sample(w.others("family", "flatmates", "services"), 4)):
            birthday = f"{person.birthday[:4]}-{month:02}-{w.rng.randrange(1, 29):02}"
            w.run("UPDATE contacts SET birthday = ? WHERE id = ?", birthday, _card(w, person))
        list_name, list_id = choose_list(w)
        year = w.now.year + 1
        goal = Goal(w, relation=relation, month=MONTHS[month - 1], year=year, name=list_name)
        for row in w.all(
            "SELECT name, birthday FROM contacts WHERE owner = ? AND relation = ? AND substr(birthday, 6, 2) = ?",
            *(w.owner.id, relation, f"{month:02}"),
        ):
            day, name = f"{year}{row['birthday'][4:]}", row["name"]
            goal.do("calendar.create", title=f"Birthday of {name}", start=f"{day} 09:00", minutes=30)
            goal.do("todo.add", list_id=list_id, text=f"Card for {name}", due=day)
        return goal

    def understood(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        return {"number": MONTHS.index(slots["month"]) + 1}

    @staticmethod
    def solve(apis: Any, relation: str, month: str, number: int, year: int, name: str) -> None:
        # I collect the birthdays in {month} from all pages and keep those of {relation}s.
        contacts, todo, calendar = log_in("contacts", "todo", "calendar")
        cards = every(apis.contacts.list_birthdays(month=number, access_token=contacts))
        found = [c for c in cards if c["relation"] == relation]
        for c in found:
            print(c["name"], c["birthday"])
        # I need the id of the list {name}.
        lists = [x for x in apis.todo.list_lists(access_token=todo) if x["name"] == name]
        print(lists)
        # Now I create an event in {year} for each birthday.
        for c in found:
            c["day"] = f"{year}" + c["birthday"][4:]
            title, start = "Birthday of " + c["name"], c["day"] + " 09:00"
            print(apis.calendar.create(title=title, start=start, minutes=30, access_token=calendar))
        # Then I add the cards to the list.
        for c in found:
            text = "Card for " + c["name"]
            print(apis.todo.add(list_id=lists[0]["id"], text=text, due=c["day"], access_token=todo))
        # All birthdays are planned.
        apis.owner.complete_task()


def _card(w: World, person: Person) -> int:
    """The owner's contact of someone."""
    return int(w.value("SELECT id FROM contacts WHERE owner = ? AND email = ?", w.owner.id, person.email))
