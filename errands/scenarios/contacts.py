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
from errands.written import apis, every, log_in, shown

MONTHS = WORDS["months"]


def card_of(w: World, person: Person) -> int:
    """The id of the owner's contact of someone."""
    return int(w.value("SELECT id FROM contacts WHERE owner = ? AND email = ?", w.owner.id, person.email))


class PhoneNumberOfSomeone(Scenario, split="train", difficulty=1):
    """Look up a phone number."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others())
        goal = Goal(w, name=person.name)
        goal.answer = person.phone
        return goal

    def solve(self, name: str) -> None:
        # I look up {name} in the contacts.
        found = shown(apis.contacts.search(query=name))
        # Found. I answer with the phone number.
        apis.owner.complete_task(answer=found[0]["phone"])


class NewAddress(Scenario, split="train", difficulty=1):
    """Change a contact's address."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others("friends", "colleagues", "family"))
        street = f"{w.rng.randrange(100, 400)} {w.rng.choice(['Elm Street', 'Harbour Road', 'Castle Hill'])}"
        goal = Goal(w, name=person.name, street=street)
        goal.do("contacts.update", contact_id=card_of(w, person), address=street)
        return goal

    def solve(self, name: str, street: str) -> None:
        # I look up {name} in the contacts.
        found = shown(apis.contacts.search(query=name))
        # Found. Now I change the address.
        print(apis.contacts.update(contact_id=found[0]["id"], address=street))
        # The address is updated.


class NoteOnContact(Scenario, split="train", difficulty=1):
    """Write a note on the contact of someone with a relation to the owner."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(ALONE)
        note = w.rng.choice(WORDS["contact_notes"])
        goal = Goal(w, relation=relation, note=note)
        goal.do("contacts.set_note", contact_id=card_of(w, w.others(relation)[0]), note=note)
        return goal

    def solve(self, relation: str, note: str) -> None:
        # I look up the {relation} in the contacts.
        found = shown(apis.contacts.search(query=relation))
        # Found. Now I write the note.
        print(apis.contacts.set_note(contact_id=found[0]["id"], note=note))
        # The note is saved.


class RemoveFavourite(Scenario, split="validation", difficulty=1):
    """Take the only one of a relation off the favourites."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(("friend", "colleague", "flatmate"))
        chosen, *others = w.rng.sample(w.others(relation), len(w.others(relation)))
        for person in (chosen, *others, *w.rng.sample(w.others("family"), 2)):
            w.run("UPDATE contacts SET favourite = ? WHERE id = ?", person not in others, card_of(w, person))
        goal = Goal(w, relation=relation)
        goal.do("contacts.set_favourite", contact_id=card_of(w, chosen), favourite=False)
        return goal

    def solve(self, relation: str) -> None:
        # I look for the {relation} among the favourites.
        found = apis.contacts.list_favourites()
        found = shown([c for c in found if c["relation"] == relation])
        # Found. I take this contact off the favourites.
        print(apis.contacts.set_favourite(contact_id=found[0]["id"], favourite=False))
        # The contact is no longer a favourite.


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

    def solve(self, subject: str, name: str, relation: str, text: str) -> None:
        # I need the email addresses of all {relation}s.
        log_in("contacts", "mail")
        found = apis.contacts.search(query=relation, page_size=20)
        to = shown([c["email"] for c in found if c["relation"] == relation])
        # Now I look for the email, by sender and exact subject.
        found = apis.mail.search(query=subject, sender=name)
        found = shown([m for m in found if m["subject"] == subject])
        # Found. I forward it.
        print(apis.mail.forward(message_id=found[0]["id"], to=to, body=text))
        # The email is forwarded.


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

    def solve(self, subject: str, relation: str) -> None:
        # I look up the {relation} in the contacts to get the email address.
        log_in("contacts", "mail")
        found = shown(apis.contacts.search(query=relation))
        # Now I look for the draft on all pages.
        listed = every(apis.mail.list_drafts())
        drafts = shown([d for d in listed if d["subject"] == subject])
        # Found. I change its recipient and send it.
        draft = drafts[0]["id"]
        print(apis.mail.update_draft(draft_id=draft, to=[found[0]["email"]]))
        print(apis.mail.send_draft(draft_id=draft))
        # The draft is sent.


class BirthdayRound(Scenario, split="train", difficulty=3):
    """Put the birthdays of a month into calendar and to-do list, but not those of the family."""

    def prepare(self, w: World) -> Goal:
        relation, month = w.rng.choice(("friend", "colleague")), w.rng.randrange(1, 13)
        meant = w.rng.sample(w.others(relation), w.rng.randrange(2, 4))
        for person in (*meant, *w.rng.sample(w.others("family", "flatmates", "services"), 4)):
            birthday = f"{person.birthday[:4]}-{month:02}-{w.rng.randrange(1, 29):02}"
            w.run("UPDATE contacts SET birthday = ? WHERE id = ?", birthday, card_of(w, person))
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

    def solve(self, relation: str, month: str, number: int, year: int, name: str) -> None:
        # I collect the birthdays in {month} from all pages and keep those of {relation}s.
        log_in("contacts", "todo", "calendar")
        cards = every(apis.contacts.list_birthdays(month=number))
        found = [c for c in cards if c["relation"] == relation]
        for c in found:
            print(c["name"], c["birthday"])
        # I need the id of the list {name}.
        lists = shown([x for x in apis.todo.list_lists() if x["name"] == name])
        # Now I create an event in {year} for each birthday.
        for c in found:
            c["day"] = f"{year}" + c["birthday"][4:]
            title, start = "Birthday of " + c["name"], c["day"] + " 09:00"
            print(apis.calendar.create(title=title, start=start, minutes=30))
        # Then I add the cards to the list.
        for c in found:
            text = "Card for " + c["name"]
            print(apis.todo.add(list_id=lists[0]["id"], text=text, due=c["day"]))
        # All birthdays are planned.
