"""Scenarios around mail."""

from errands.apps.mail import deliver
from errands.judge import Goal
from errands.people import ALONE, Person
from errands.scenario import Scenario
from errands.words import WORDS
from errands.world import World
from errands.written import apis, every, log_in, shown


def mail_from(w: World, person: Person, subject: str, body: str, time: str) -> int:
    """Put an unread email from a person into the owner's inbox; its id."""
    return deliver(w, person.name, person.email, subject, body, time)


def _mail_from_company(w: World, name: str, subject: str, body: str, time: str) -> int:
    return deliver(w, name, f"info@{name.replace(' ', '').lower()}.com", subject, body, time)


class MailToRelation(Scenario, split="train", difficulty=1):
    """Send a mail to the person who has a relation to the owner."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(ALONE)
        subject = w.rng.choice(("Tomorrow", "A question", "Thank you", "News", "Sunday", "The keys", "My visit"))
        text = w.rng.choice(WORDS["short_mails"])
        goal = Goal(w, relation=relation, subject=subject, text=text)
        goal.do("mail.send", to=[w.others(relation)[0].email], subject=subject, body=text)
        return goal

    def solve(self, relation: str, subject: str, text: str) -> None:
        # I look up the {relation} in the contacts to get the email address.
        log_in("contacts", "mail")
        found = shown(apis.contacts.search(query=relation))
        # Found. Now I send the email to this address.
        print(apis.mail.send(to=[found[0]["email"]], subject=subject, body=text))
        # The email is sent.


class ReplyToLastMail(Scenario, split="train", difficulty=1):
    """Reply to the newest mail of someone."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others())
        text = w.rng.choice(WORDS["mail_replies"])
        subjects = w.rng.sample(("Saturday", "Your bike", "A favour", "The plants"), 2)
        for subject, hours in zip(subjects, (70, 2), strict=True):
            last = mail_from(w, person, subject, "What do you think?", w.ago(hours=hours))
        goal = Goal(w, name=person.name, text=text)
        goal.do("mail.reply", message_id=last, body=text)
        return goal

    def solve(self, name: str, text: str) -> None:
        # I search for emails from {name}. The newest comes first, so I need only one.
        found = shown(apis.mail.search(sender=name, page_size=1))
        # This is the latest one. I reply to it.
        print(apis.mail.reply(message_id=found[0]["id"], body=text))
        # The reply is sent.


class CodeFromMail(Scenario, split="train", difficulty=1):
    """Tell a code that stands in a mail."""

    def prepare(self, w: World) -> Goal:
        senders = w.rng.sample(WORDS["code_senders"], 2)
        codes = [str(code) for code in w.rng.sample(range(10_000, 100_000), 2)]
        for sender, code, hours in zip(senders, codes, w.rng.sample((3, 30, 90, 200), 2), strict=True):
            text = w.rng.choice(("Welcome. Your code is {}.", "Use the code {} to open.", "Thank you. Code: {}."))
            subject = w.rng.choice(("Welcome", "Your access", "Hello"))
            _mail_from_company(w, sender, subject, text.format(code), w.ago(hours=hours))
        goal = Goal(w, sender=senders[0])
        goal.answer = codes[0]
        return goal

    def solve(self, sender: str) -> None:
        # I search for the email from {sender}.
        found = shown(apis.mail.search(sender=sender))
        # Found. Now I read it.
        body = shown(apis.mail.show(message_id=found[0]["id"])["body"])
        # The code is the number in the text. I answer with it.
        apis.owner.complete_task(answer="".join(c for c in body if c.isdigit()))


class StarLastMail(Scenario, split="dev", difficulty=1):
    """Star the newest mail of someone."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others())
        for subject, hours in (("The plan", 80), ("One more thing", 3)):
            last = mail_from(w, person, subject, "Please keep this in mind.", w.ago(hours=hours))
        goal = Goal(w, name=person.name)
        goal.do("mail.star", message_id=last)
        return goal

    def solve(self, name: str) -> None:
        # I search for emails from {name}. The newest comes first, so I need only one.
        found = shown(apis.mail.search(sender=name, page_size=1))
        # This is the latest one. I star it.
        print(apis.mail.star(message_id=found[0]["id"]))
        # The email is starred.


class ArchiveOldNewsletter(Scenario, split="train", difficulty=2):
    """Archive all mails of a sender from before a day."""

    def prepare(self, w: World) -> Goal:
        sender = w.rng.choice(("Garden Post", "Rail Times", "Film Weekly", "Travel Owl"))
        days = w.rng.sample(range(2, 90), w.rng.randrange(6, 10))
        found = {n: _mail_from_company(w, sender, f"Issue {200 - n}", "Here is our news.", w.ago(n)) for n in days}
        border = sorted(days)[w.rng.randrange(1, 4)]
        goal = Goal(w, sender=sender, day=w.day(-border))
        for days_ago, message in found.items():
            if days_ago > border:
                goal.do("mail.archive", message_id=message)
        return goal

    def solve(self, sender: str, day: str) -> None:
        # I collect the emails from {sender} from all pages.
        found = every(apis.mail.search(sender=sender))
        print([m["time"] for m in found])
        # I archive those from before {day}.
        old = [m for m in found if m["time"] < day]
        for m in old:
            apis.mail.archive(message_id=m["id"])
        print(len(old))
        # The old emails are archived.


class MarkStrangersRead(Scenario, split="dev", difficulty=2):
    """Mark the unread mails of those who are not in the contacts as read."""

    def prepare(self, w: World) -> Goal:
        for sender in w.rng.sample(("Lamp Market", "Sky Travel", "Tea House", "Shoe Barn", "Quiz Night"), 3):
            _mail_from_company(w, sender, "Only today", "Come and see.", w.ago(hours=w.rng.randrange(5, 500)))
        for person in w.rng.sample(w.others(), 2):
            mail_from(w, person, "Hello", "How are you?", w.ago(hours=w.rng.randrange(5, 500)))
        goal = Goal(w)
        for row in w.all(
            "SELECT id FROM mail_messages WHERE owner = ?1 AND folder = 'inbox' AND NOT read "
            "AND address NOT IN (SELECT email FROM contacts WHERE owner = ?1)",
            w.owner.id,
        ):
            goal.do("mail.mark_read", message_id=row["id"])
        return goal

    def solve(self) -> None:
        # I need the names of all contacts, from all pages.
        log_in("contacts", "mail")
        listed = every(apis.contacts.search())
        names = [c["name"] for c in listed]
        print(len(names))
        # Now I collect all unread emails before I mark any, because marking changes the pages.
        unread = every(apis.mail.list_unread())
        strange = [m for m in unread if m["sender"] not in names]
        print([m["sender"] for m in strange])
        # These senders are not in the contacts. I mark their emails as read.
        for m in strange:
            apis.mail.mark_read(message_id=m["id"])
        # They are marked as read.


class LabelSender(Scenario, split="validation", difficulty=2):
    """Make a label and put it on all mails of a sender, in inbox and archive."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others())
        for number in range(w.rng.randrange(5, 8)):
            message = mail_from(w, person, f"Part {number + 1}", "More to come.", w.ago(3 * number + 1))
            if w.rng.random() < 0.5:
                w.run("UPDATE mail_messages SET folder = 'archive' WHERE id = ?", message)
        goal = Goal(w, sender=person.name, label=w.rng.choice(("important", "keep", "project", "later", "private")))
        goal.do("mail.create_label", name=goal.slots["label"])
        for row in w.all(
            "SELECT id FROM mail_messages WHERE owner = ? AND folder IN ('inbox', 'archive') AND address = ?",
            *(w.owner.id, person.email),
        ):
            goal.do("mail.add_label", message_id=row["id"], label=goal.slots["label"])
        return goal

    def solve(self, sender: str, label: str) -> None:
        # I collect the emails from {sender} in both folders, from all pages.
        inbox = every(apis.mail.search(sender=sender, folder="inbox"))
        archive = every(apis.mail.search(sender=sender, folder="archive"))
        found = inbox + archive
        print([m["subject"] for m in found])
        # Now I create the label and add it to all of them.
        print(apis.mail.create_label(name=label))
        for m in found:
            apis.mail.add_label(message_id=m["id"], label=label)
        # All of them have the label.


class PayByMail(Scenario, split="validation", difficulty=3):
    """Pay the colleagues who ask for their share by mail, and archive their mails."""

    def prepare(self, w: World) -> Goal:
        subject = w.rng.choice(("Farewell present", "Lunch boxes", "Coffee kitty", "Taxi on Thursday", "Team quiz"))
        colleagues, others = w.others("colleague"), w.rng.sample(w.others("friends", "family", "flatmates"), 3)
        paid = []
        for person in w.rng.sample([*colleagues, *others], 6):
            amount = w.rng.randrange(305, 1200, 5) / 100
            text = w.rng.choice(("You owe me {:.2f} for this.", "Your share is {:.2f}.", "That makes {:.2f} for you."))
            message = mail_from(w, person, subject, text.format(amount), w.ago(hours=w.rng.random() * 99))
            if person in colleagues:
                paid.append((message, person.email, amount))
        goal = Goal(w, subject=subject)
        for message, email, amount in paid:
            goal.do("wallet.send", email=email, amount=amount, note=subject)
            goal.do("mail.archive", message_id=message)
        goal.answer = round(sum(amount for _, _, amount in paid), 2)
        return goal

    def solve(self, subject: str) -> None:
        # First I need the email addresses of the colleagues.
        log_in("contacts", "mail", "wallet")
        found = apis.contacts.search(query="colleague", page_size=20)
        emails = shown([c["email"] for c in found if c["relation"] == "colleague"])
        # Now I collect the emails from all pages.
        listed = every(apis.mail.search(query=subject))
        found = shown([m["id"] for m in listed if m["subject"] == subject])
        # The amounts are in the text, so I read the emails and keep those from colleagues.
        mails = [apis.mail.show(message_id=n) for n in found]
        mails = [m for m in mails if m["address"] in emails]
        for m in mails:
            print(m["sender"], m["body"])
        # Each text has one number. I extract it and check it.
        import re

        for m in mails:
            m["amount"] = float(re.findall(r"\d+\.\d\d", m["body"])[0])
        print([m["amount"] for m in mails])
        # Now I pay and archive.
        for m in mails:
            apis.wallet.send(email=m["address"], amount=m["amount"], note=subject)
            apis.mail.archive(message_id=m["id"])
        total = shown(round(sum([m["amount"] for m in mails]), 2))
        # Everything is paid. I answer with the sum.
        apis.owner.complete_task(answer=total)
