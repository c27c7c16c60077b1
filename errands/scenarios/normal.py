"""The split test_normal: other errands with the apps of train.

Frozen: nobody reads attempts at them, and no practice is written for them.
"""

from errands.apps.mail import deliver
from errands.apps.wallet import transfer
from errands.judge import Goal, act
from errands.people import ALONE, Person
from errands.scenario import Scenario
from errands.scenarios.calendar import add_event
from errands.scenarios.contacts import card_of
from errands.scenarios.phone import add_call, receive, strangers
from errands.scenarios.shop import address_of, past_order, products, valid_card
from errands.scenarios.todo import add_item, chores, owned_lists
from errands.scenarios.wallet import CIRCLES, THINGS, add_request, amount_between
from errands.words import WORDS
from errands.world import World
from errands.written import apis, every, log_in, shown

# None of these words are in a new world.
EVENTS = WORDS["courses"]
PARTIES = WORDS["parties"]
SUBJECTS = WORDS["mail_subjects"]
FIRMS = WORDS["firms"]


def some_list(w: World) -> tuple[str, int]:
    """A to-do list on which anything may be: name and id."""
    name = w.rng.choice(("Errands", "Home", "Work"))
    return name, owned_lists(w)[name]


def file_mail(w: World, sender: Person, subject: str, folder: str) -> int:
    """A mail that the owner got some time ago and that is now in a folder."""
    message = deliver(w, sender.name, sender.email, subject, "As promised.", w.ago(hours=w.rng.randrange(2, 900)))
    w.run("UPDATE mail_messages SET folder = ? WHERE id = ?", folder, message)
    return message


def add_note(w: World, title: str, lines: list[str], days: int, archived: bool = False) -> int:
    """A note that the owner wrote so many days ago."""
    row = {"title": title, "body": "\n".join(lines), "created": w.ago(days, hours=1), "archived": int(archived)}
    return w.add("notes", owner=w.owner.id, **row)


def add_lookalike(w: World, relation: str) -> None:
    """A contact that a search for the relation finds too, though it is not one."""
    row = {"name": f"{relation.capitalize()} Hotline", "email": f"help@{relation}.org", "phone": strangers(w, 1)[0]}
    w.add("contacts", owner=w.owner.id, **row, relation="other", birthday="1990-01-01", address="unknown")


def empty_days(w: World) -> list[str]:
    """Coming days with no event that the owner organises or is invited to."""
    taken = w.all(
        "SELECT substr(start, 1, 10) AS day FROM calendar_events e WHERE owner = ?1 "
        "OR EXISTS (SELECT 1 FROM calendar_guests WHERE event_id = e.id AND guest = ?1)",
        w.owner.id,
    )
    days = {row["day"] for row in taken}
    return [w.day(offset) for offset in range(2, 40) if w.day(offset) not in days]


def answers_of(w: World, guests: list[Person], **counts: int) -> dict[Person, str]:
    """What each guest said; `counts` says how many said what."""
    said = [answer for answer, count in counts.items() for _ in range(count)]
    return dict(zip(guests, w.rng.sample(said, len(guests)), strict=True))


# -- difficulty 1 ------------------------------------------------------------------------------------------------------


class RestoreMail(Scenario, split="test_normal", difficulty=1):
    """Take a mail out of the trash and star it."""

    def prepare(self, w: World) -> Goal:
        writer, other = w.rng.sample(w.others(), 2)
        subject, another = w.rng.sample(SUBJECTS, 2)
        trash = [(writer, subject), (other, subject), (writer, another)]
        ids = {mail: file_mail(w, *mail, "trash") for mail in w.rng.sample(trash, 3)}
        file_mail(w, writer, f"Re: {subject}", "inbox")
        goal = Goal(w, subject=subject, name=writer.name)
        goal.do("mail.restore", message_id=ids[writer, subject])
        goal.do("mail.star", message_id=ids[writer, subject])
        return goal

    def solve(self, subject: str, name: str) -> None:
        # I look for the mail in the trash.
        found = shown(apis.mail.search(query=subject, sender=name, folder="trash"))
        # There is one; I restore it and star it.
        print(apis.mail.restore(message_id=found[0]["id"]))
        print(apis.mail.star(message_id=found[0]["id"]))
        # The mail is back.


class UnblockAndText(Scenario, split="test_normal", difficulty=1):
    """Unblock someone's number and send an apology."""

    def prepare(self, w: World) -> Goal:
        relation = w.rng.choice(ALONE)
        (person,) = w.others(relation)
        others = [one for one in w.others() if one is not person]
        for blocked in w.rng.sample([person, *w.rng.sample(others, 2)], 3):
            w.add("phone_blocked", owner=w.owner.id, number=blocked.phone)
        add_lookalike(w, relation)
        text = w.rng.choice(("You can reach me again", "Please try again", "Sorry, that was a mistake", "I am back"))
        goal = Goal(w, relation=relation, text=text)
        goal.do("phone.unblock", number=person.phone)
        goal.do("phone.send_message", number=person.phone, text=text)
        return goal

    def solve(self, relation: str, text: str) -> None:
        # I look up the number of my owner's {relation}.
        log_in("contacts", "phone")
        found = apis.contacts.search(query=relation)
        numbers = shown([c["phone"] for c in found if c["relation"] == relation])
        # I unblock it and send the text.
        print(apis.phone.unblock(number=numbers[0]))
        print(apis.phone.send_message(number=numbers[0], text=text))
        # The number is unblocked and the text is sent.


class FirstFreeTime(Scenario, split="test_normal", difficulty=1):
    """Put something into the first free time of a day, with a reminder."""

    def prepare(self, w: World) -> Goal:
        day, minutes = w.day(w.rng.randrange(2, 15)), w.rng.choice((50, 65, 80))
        title = w.rng.choice(("Tax return", "Exam revision", "Bookkeeping", "Letter to the council"))
        times = ("08:00", w.rng.choice(("09:10", "09:25")), "16:10")
        for other, time in zip(w.rng.sample(EVENTS, 3), times, strict=True):
            add_event(w, w.owner, other, f"{day} {time}")
        before = w.rng.choice((5, 20, 25, 40))
        goal = Goal(w, title=title, minutes=minutes, day=day, before=before)
        free = act(w, "calendar.list_free_times", {"day": day, "minutes": minutes})
        made = goal.do("calendar.create", title=title, start=free[0]["start"], minutes=minutes)
        goal.do("calendar.add_reminder", event_id=made["event_id"], minutes_before=before)
        return goal

    def solve(self, title: str, minutes: int, day: str, before: int) -> None:
        # I list the free times of that day which are long enough.
        free = shown(apis.calendar.list_free_times(day=day, minutes=minutes))
        # The first is the earliest; the event starts when it does.
        made = shown(apis.calendar.create(title=title, start=free[0]["start"], minutes=minutes))
        # I add the reminder.
        print(apis.calendar.add_reminder(event_id=made["event_id"], minutes_before=before))
        # The event is in the calendar.


class UseVoucher(Scenario, split="test_normal", difficulty=1):
    """Apply the voucher that is still valid, and say what the cart costs."""

    def prepare(self, w: World) -> Goal:
        used = {"code": f"GIFT{w.rng.randrange(100, 1000)}", "percent": 25, "expires": w.day(60), "status": "used"}
        w.add("shop_vouchers", owner=w.owner.id, **used)
        goal = Goal(w)
        valid = "SELECT code FROM shop_vouchers WHERE owner = ? AND status = 'free' AND expires >= ?"
        goal.do("shop.apply_voucher", code=w.value(valid, w.owner.id, w.today))
        goal.answer = act(goal.wish, "shop.show_cart", {})["total"]
        return goal

    def solve(self) -> None:
        # I look at the vouchers.
        vouchers = shown(apis.shop.list_vouchers())
        # The one that is free and expires last can be used; I apply it.
        free = [v for v in vouchers if v["status"] == "free"]
        best = max(free, key=lambda v: v["expires"])
        print(apis.shop.apply_voucher(code=best["code"]))
        # I look at what the cart costs now.
        cart = apis.shop.show_cart()
        print(cart["voucher"], cart["total"])
        # I answer with the total.
        apis.owner.complete_task(answer=cart["total"])


class FindNoteByLine(Scenario, split="test_normal", difficulty=1):
    """Find the note that contains a line, pin it and tag it."""

    def prepare(self, w: World) -> Goal:
        thing = w.rng.choice(("locker", "gate code", "room", "seat", "shelf mark"))
        numbers = w.rng.sample(range(100, 1000), 4)
        titles = w.rng.sample(("Scraps", "Odds and ends", "To remember", "This and that"), 4)
        days = w.rng.sample(range(1, 90), 4)
        notes = [
            add_note(w, title, [text, f"{thing} {number}"], ago)
            for title, text, number, ago in zip(titles, chores(w, 4), numbers, days, strict=True)
        ]
        goal = Goal(w, line=f"{thing} {numbers[0]}", tag=w.rng.choice(("keep", "codes", "urgent", "important")))
        goal.do("notes.pin", note_id=notes[0])
        goal.do("notes.add_tag", note_id=notes[0], tag=goal.slots["tag"])
        return goal

    def solve(self, line: str, tag: str) -> None:
        # A search also looks into the text of notes.
        found = shown(apis.notes.search(query=line))
        # There is one; I pin it and tag it.
        print(apis.notes.pin(note_id=found[0]["id"]))
        print(apis.notes.add_tag(note_id=found[0]["id"], tag=tag))
        # The note is pinned and tagged.


class KeepInWallet(Scenario, split="test_normal", difficulty=1):
    """Withdraw all but a certain amount to a card."""

    def prepare(self, w: World) -> Goal:
        labels = w.rng.sample(("savings", "credit", "joint"), 2)
        row = {"person": w.owner.id, "number": "4711 0815", "expires": f"{w.now.year + 2}-06"}
        cards = {label: w.add("cards", label=label, **row) for label in labels}
        keep, card = w.rng.randrange(11, 55), w.rng.choice(labels)
        goal = Goal(w, keep=keep, card=card)
        rest = w.value("SELECT balance_cents FROM wallet_accounts WHERE owner = ?", w.owner.id) - 100 * keep
        goal.do("wallet.withdraw_money", card_id=cards[card], amount=rest / 100)
        return goal

    def solve(self, keep: int, card: str) -> None:
        # I look at the balance and the cards.
        balance = apis.wallet.show_balance()["balance"]
        cards = [c for c in apis.owner.list_cards() if c["label"] == card]
        print(balance, cards)
        # I withdraw what is above {keep} to this card.
        rest = round(balance - keep, 2)
        print(apis.wallet.withdraw_money(card_id=cards[0]["id"], amount=rest))
        # The rest is withdrawn.


class ReopenUrgent(Scenario, split="test_normal", difficulty=1):
    """Make a done item open and urgent again."""

    def prepare(self, w: World) -> Goal:
        text, other = chores(w, 2)
        here, there = w.rng.sample(list(owned_lists(w).values()), 2)
        add_item(w, there, text, due=w.day(3))
        item = add_item(w, here, text, due=w.day(-w.rng.randrange(1, 9)), done=True)
        add_item(w, here, other, done=True)
        goal = Goal(w, text=text, day=w.day(w.rng.randrange(4, 15)))
        goal.do("todo.reopen", item_id=item)
        goal.do("todo.update", item_id=item, due=goal.slots["day"], priority="high")
        return goal

    def solve(self, text: str, day: str) -> None:
        # I look for the item; I need the one that is done.
        found = shown([x for x in apis.todo.search(query=text) if x["done"]])
        # I reopen it and change its due date and priority.
        print(apis.todo.reopen(item_id=found[0]["id"]))
        print(apis.todo.update(item_id=found[0]["id"], due=day, priority="high"))
        # The item is open again.


# -- difficulty 2 ------------------------------------------------------------------------------------------------------


class NudgeGuests(Scenario, split="test_normal", difficulty=2):
    """Text the guests who have not answered."""

    def prepare(self, w: World) -> Goal:
        title, days = w.rng.choice(PARTIES), [w.day(offset) for offset in w.rng.sample(range(2, 25), 2)]
        for day in (w.day(-9), *days):
            guests = w.rng.sample(w.others(*CIRCLES), 8)
            answers = answers_of(w, guests, open=w.rng.choice((3, 4)), accepted=3, declined=2)
            add_event(w, w.owner, title, f"{day} 20:00", answers)
        add_event(w, w.owner, w.rng.choice(EVENTS), f"{days[-1]} 07:20")
        text = w.rng.choice(("Are you coming?", "Please answer my invitation", "Can I count you in?"))
        goal = Goal(w, title=title, day=days[-1], text=text)
        for guest, answer in answers.items():
            if answer == "open":
                goal.do("phone.send_message", number=guest.phone, text=text)
        return goal

    def solve(self, title: str, day: str, text: str) -> None:
        # I look for the event on that day.
        log_in("calendar", "contacts", "phone")
        found = shown([x for x in apis.calendar.list_day(day=day) if x["title"] == title])
        # I collect its guests from all pages and keep those who have not answered.
        guests = every(apis.calendar.list_guests(event_id=found[0]["id"]))
        waiting = [g for g in guests if g["answer"] == "open"]
        print([g["name"] for g in waiting])
        # The contacts have their numbers.
        numbers = shown([apis.contacts.search(query=g["email"])[0]["phone"] for g in waiting])
        # I text each of them.
        for number in numbers:
            print(apis.phone.send_message(number=number, text=text))
        # All are asked again.


class LabelSpending(Scenario, split="test_normal", difficulty=2):
    """Label the payments with a note since a day, and add them up."""

    def prepare(self, w: World) -> Goal:
        note, border = w.rng.choice(THINGS), w.rng.randrange(15, 25)
        me, people = w.owner.id, [person.id for person in w.others(*CIRCLES)]
        for days in (*w.rng.sample(range(2, border), 5), border, *w.rng.sample(range(border + 1, 60), 2)):
            transfer(w, me, w.rng.choice(people), w.rng.randrange(200, 600, 10), note, w.ago(days))
            transfer(w, w.rng.choice(people), me, w.rng.randrange(200, 600, 10), note, w.ago(days, hours=2))
        transfer(w, me, w.rng.choice(people), w.rng.randrange(200, 600, 10), f"more {note}", w.ago(3))
        label = w.rng.choice(("party", "household", "hobby", "club", "deductible"))
        goal = Goal(w, note=note, day=w.day(-border), label=label)
        sent = "SELECT * FROM wallet_transactions WHERE owner = ? AND direction = 'sent' AND note = ? AND at >= ?"
        found = w.all(sent, me, note, goal.slots["day"])
        for row in found:
            goal.do("wallet.set_label", transaction_id=row["id"], label=label)
        goal.answer = sum(row["amount_cents"] for row in found) / 100
        return goal

    def solve(self, note: str, day: str, label: str) -> None:
        # I collect the transactions with this word from all pages.
        found = every(apis.wallet.search_transactions(query=note))
        print(len(found))
        # I keep what was sent since {day} with exactly this note.
        kept = [t for t in found if t["direction"] == "sent" and t["note"] == note and t["at"] >= day]
        print([(t["id"], t["amount"], t["at"]) for t in kept])
        # I label each.
        for t in kept:
            print(apis.wallet.set_label(transaction_id=t["id"], label=label))
        # I answer with the sum.
        apis.owner.complete_task(answer=round(sum([t["amount"] for t in kept]), 2))


class ShiftCourse(Scenario, split="test_normal", difficulty=2):
    """Move all dates of a course from a day on to another time, with reminders."""

    def prepare(self, w: World) -> Goal:
        title, first, count = w.rng.choice(EVENTS), w.rng.randrange(1, 6), w.rng.randrange(9, 12)
        weeks = range(first - 14, first - 14 + 7 * count, 7)
        events = {w.day(offset): add_event(w, w.owner, title, f"{w.day(offset)} 12:10") for offset in weeks}
        for offset in (first + 14, first + 21):
            add_event(w, w.owner, f"{title} committee", f"{w.day(offset)} 12:40")
        start, time = w.rng.choice((3, 4)), f"{w.rng.randrange(7, 20):02}:{w.rng.choice(('05', '25', '40'))}"
        goal = Goal(w, title=title, day=list(events)[start], time=time, before=w.rng.choice((20, 25, 45, 90)))
        for day, event in list(events.items())[start:]:
            goal.do("calendar.update", event_id=event, start=f"{day} {time}")
            goal.do("calendar.add_reminder", event_id=event, minutes_before=goal.slots["before"])
        return goal

    def solve(self, title: str, day: str, time: str, before: int) -> None:
        # I collect the coming events with this title from all pages.
        found = every(apis.calendar.list_upcoming(query=title))
        moved = [x for x in found if x["title"] == title and x["start"][:10] >= day]
        print([x["start"] for x in moved])
        # I move each to the new time of the same day, and add a reminder.
        for x in moved:
            apis.calendar.update(event_id=x["id"], start=x["start"][:11] + time)
            print(apis.calendar.add_reminder(event_id=x["id"], minutes_before=before))
        # All of them are moved.


class ForgetStrangers(Scenario, split="test_normal", difficulty=2):
    """Delete the old text conversations with numbers that are not in the contacts."""

    def prepare(self, w: World) -> Goal:
        border = w.rng.randrange(8, 20)
        numbers = strangers(w, 7)
        old = numbers[: w.rng.randrange(3, 6)]
        for number in numbers:
            for days in w.rng.sample(range(border + 1, 60), 2):
                receive(w, number, w.rng.choice(("Your parcel is here", "Who is this?", "Call us")), hours=24 * days)
            if number not in old:
                receive(w, number, "Are you still there?", hours=24 * w.rng.randrange(1, border + 1))
        texted = "SELECT id FROM phone_messages WHERE owner = ? AND number = ?"
        quiet = [person.phone for person in w.others() if not w.value(texted, w.owner.id, person.phone)]
        receive(w, w.rng.choice(quiet), "Long time no see", hours=24 * (border + 2))
        goal = Goal(w, day=w.day(-border))
        for number in old:
            goal.do("phone.delete_conversation", number=number)
        return goal

    def solve(self, day: str) -> None:
        # I collect the conversations from all pages and keep the old ones.
        log_in("phone", "contacts")
        found = every(apis.phone.list_conversations())
        old = shown([x["number"] for x in found if x["last"] < day])
        # I keep the numbers that are not in the contacts.
        unknown = shown([number for number in old if not apis.contacts.search(query=number)])
        # I delete these conversations.
        for number in unknown:
            print(apis.phone.delete_conversation(number=number))
        # They are gone.


class MergeTagged(Scenario, split="test_normal", difficulty=2):
    """Put all notes with a tag into one, and delete them."""

    def prepare(self, w: World) -> Goal:
        tag, title = w.rng.choice((("sailing", "All about sailing"), ("bees", "Bee keeping"), ("wine", "Wine diary")))
        ages, texts = w.rng.sample(range(1, 100), 10), chores(w, 10)
        notes = []
        for number, (age, text) in enumerate(zip(ages, texts, strict=True)):
            name = f"{tag.capitalize()} {w.rng.randrange(1000, 10000)}"
            notes.append((age, add_note(w, name, [text, "ask again"], age, archived=number == 9), text))
        tagged = w.rng.sample(notes[:9], w.rng.randrange(6, 9))
        for _, note, _ in (*tagged, notes[9]):
            w.add("notes_tags", note_id=note, tag=tag)
        goal = Goal(w, tag=tag, title=title)
        body = "\n".join(f"{text}\nask again" for _, _, text in sorted(tagged, reverse=True))
        goal.do("notes.create", title=title, body=body)
        for _, note, _ in tagged:
            goal.do("notes.delete", note_id=note)
        return goal

    def solve(self, tag: str, title: str) -> None:
        # I collect the notes with the tag from all pages, and sort them by age.
        found = every(apis.notes.search(tag=tag))
        found = sorted(found, key=lambda n: n["created"])
        print([(n["title"], n["created"]) for n in found])
        # I read them.
        bodies = shown([apis.notes.show(note_id=n["id"])["body"] for n in found])
        # I write the new note.
        print(apis.notes.create(title=title, body="\n".join(bodies)))
        # I delete the old ones.
        for n in found:
            print(apis.notes.delete(note_id=n["id"]))
        # There is one note now.


class OrderAgain(Scenario, split="test_normal", difficulty=2):
    """Order once more what was ordered on a day."""

    def prepare(self, w: World) -> Goal:
        orders = w.all("SELECT substr(at, 1, 10) AS day FROM shop_orders WHERE owner = ?", w.owner.id)
        taken = {row["day"] for row in orders}
        ago = w.rng.choice([days for days in range(40, 120) if w.day(-days) not in taken])
        items = {row["id"]: w.rng.randrange(1, 5) for row in w.rng.sample(products(w), 3)}
        past_order(w, w.ago(ago), "delivered", items)
        place = w.rng.choice(("home", "work"))
        goal = Goal(w, day=w.day(-ago), place=place)
        goal.do("shop.clear_cart")
        for product, quantity in items.items():
            goal.do("shop.add_to_cart", product_id=product, quantity=quantity)
        goal.do("shop.place_order", address_id=address_of(w, place), card_id=valid_card(w))
        return goal

    def solve(self, day: str, place: str) -> None:
        # I look for the order of that day on all pages.
        orders = every(apis.shop.list_orders())
        found = shown([o for o in orders if o["at"][:10] == day])
        # I look at its items.
        items = shown(apis.shop.show_order(order_id=found[0]["id"])["items"])
        # I put the same into an empty cart.
        apis.shop.clear_cart()
        for item in items:
            print(apis.shop.add_to_cart(product_id=item["product_id"], quantity=item["quantity"]))
        # I need the address and the debit card.
        address = [a["id"] for a in apis.owner.list_addresses() if a["label"] == place][0]
        debit = [c["id"] for c in apis.owner.list_cards() if c["label"] == "debit"][0]
        print(address, debit)
        # I place the order.
        print(apis.shop.place_order(address_id=address, card_id=debit))
        # It is ordered.


class ExchangeLabel(Scenario, split="test_normal", difficulty=2):
    """Give the mails of someone with one label another one instead."""

    def prepare(self, w: World) -> Goal:
        old, new = w.rng.sample(("home", "receipts", "travel", "work"), 2)
        label = "SELECT id FROM mail_labels WHERE owner = ? AND name = ?"
        old_id, new_id = (w.value(label, w.owner.id, name) for name in (old, new))
        both = "SELECT message FROM mail_labelled WHERE label = ?"
        w.run(f"DELETE FROM mail_labelled WHERE label = ? AND message IN ({both})", new_id, old_id)
        sender, *others = w.rng.sample(w.others(), 4)
        senders = [sender] * w.rng.randrange(6, 9) + others
        for number, person in enumerate(w.rng.sample(senders, len(senders))):
            message = file_mail(w, person, f"Part {number + 1}", w.rng.choice(("inbox", "archive")))
            w.add("mail_labelled", message=message, label=old_id)
        file_mail(w, sender, "Something else", "inbox")
        goal = Goal(w, name=sender.name, old=old, new=new)
        theirs = f"SELECT id FROM mail_messages WHERE owner = ? AND address = ? AND id IN ({both})"
        for row in w.all(theirs, w.owner.id, sender.email, old_id):
            goal.do("mail.add_label", message_id=row["id"], label=new)
            goal.do("mail.remove_label", message_id=row["id"], label=old)
        return goal

    def solve(self, name: str, old: str, new: str) -> None:
        # I collect the mails with the label from all pages before I change any, because that changes the pages.
        labelled = every(apis.mail.list_labelled(label=old))
        found = [m for m in labelled if m["sender"] == name]
        print([m["subject"] for m in found])
        # I exchange the label of each.
        for m in found:
            apis.mail.add_label(message_id=m["id"], label=new)
            print(apis.mail.remove_label(message_id=m["id"], label=old))
        # The labels are exchanged.


class LongestTalk(Scenario, split="test_normal", difficulty=2):
    """Find out with which contact the owner talked longest, and make them a favourite."""

    def prepare(self, w: World) -> Goal:
        border = w.rng.randrange(20, 40)
        often, once, before = w.rng.sample(w.others(), 3)
        for minutes in w.rng.sample(range(40, 60), 3):
            add_call(w, often.phone, w.rng.choice(("incoming", "outgoing")), w.rng.randrange(9, border), minutes)
        add_call(w, once.phone, "incoming", w.rng.randrange(1, 4), 90)
        add_call(w, before.phone, "outgoing", border + w.rng.randrange(1, 15), 240)
        add_call(w, strangers(w, 1)[0], "incoming", w.rng.randrange(1, border), 300)
        day = w.day(-border)
        totals = (
            "SELECT c.id, name, phone, sum(minutes) AS total FROM phone_calls p JOIN contacts c ON c.phone = p.number "
            "AND c.owner = p.owner WHERE p.owner = ? AND time >= ? GROUP BY c.id ORDER BY total DESC, c.id"
        )
        top = w.all(totals, w.owner.id, day)[0]
        add_call(w, top["phone"], "outgoing", w.rng.randrange(9, border), w.rng.randrange(3, 9))  # so there is no tie
        w.run("UPDATE contacts SET favourite = 0 WHERE id = ?", top["id"])
        goal = Goal(w, day=day)
        goal.do("contacts.set_favourite", contact_id=top["id"])
        goal.answer = top["name"]
        return goal

    def solve(self, day: str) -> None:
        # I collect the calls since {day} from all pages and add up the minutes of each number.
        log_in("phone", "contacts")
        found = every(apis.phone.list_calls())
        calls = [c for c in found if c["time"] >= day]
        minutes = dict.fromkeys([c["number"] for c in calls], 0)
        for c in calls:
            minutes[c["number"]] += c["minutes"]
        ranking = sorted(minutes, key=lambda number: -minutes[number])
        print([(number, minutes[number]) for number in ranking])
        # Some numbers may not be in the contacts; I take the first that is.
        known = []
        for number in ranking:
            known += apis.contacts.search(query=number)
        print(known[0])
        # I make this contact a favourite.
        print(apis.contacts.set_favourite(contact_id=known[0]["id"]))
        # I answer with the name.
        apis.owner.complete_task(answer=known[0]["name"])


class MailWhatIsDue(Scenario, split="test_normal", difficulty=2):
    """Mail someone the items of a list that are due until a day."""

    def prepare(self, w: World) -> Goal:
        (name, list_id), border = some_list(w), w.rng.randrange(5, 12)
        texts, dues = chores(w, 7), [w.day(n) for n in (-2, 1, border, border + 1, border + 4)]
        for text, due in zip(texts[:6], [*dues, None], strict=True):
            add_item(w, list_id, text, due=due)
        add_item(w, list_id, texts[6], due=w.day(2), done=True)
        relation = w.rng.choice(ALONE)
        add_lookalike(w, relation)
        subject = w.rng.choice(("My list", "Open points", "What is left", "Can you help?"))
        goal = Goal(w, relation=relation, list_name=name, day=w.day(border), subject=subject)
        due = "SELECT text FROM todo_items WHERE list_id = ? AND NOT done AND due <= ? ORDER BY text"
        body = "\n".join(row["text"] for row in w.all(due, list_id, w.day(border)))
        goal.do("mail.send", to=[w.others(relation)[0].email], subject=subject, body=body)
        return goal

    def solve(self, relation: str, list_name: str, day: str, subject: str) -> None:
        # I need the id of the {list_name} list.
        log_in("todo", "contacts", "mail")
        lists = shown([x for x in apis.todo.list_lists() if x["name"] == list_name])
        # I collect its open items from all pages and keep those due by {day}.
        items = every(apis.todo.list_items(list_id=lists[0]["id"]))
        due = shown(sorted([x["text"] for x in items if x["due"] and x["due"] <= day]))
        # I look up the address of my owner's {relation}.
        cards = apis.contacts.search(query=relation)
        emails = shown([c["email"] for c in cards if c["relation"] == relation])
        # I send the mail.
        print(apis.mail.send(to=emails, subject=subject, body="\n".join(due)))
        # The mail is sent.


# -- difficulty 3 ------------------------------------------------------------------------------------------------------


class PlanFromNote(Scenario, split="test_normal", difficulty=3):
    """Turn the coming dates in a note into events with guests, and text the guests."""

    def prepare(self, w: World) -> Goal:
        title = w.rng.choice(("Dates with people", "People to see", "My social life"))
        one, two, three, gone = w.rng.sample(w.others("friends", "family", "flatmates"), 4)
        offsets = [*w.rng.sample(range(2, 30), 4), *w.rng.sample(range(-15, 0), 2)]
        planned = list(zip(offsets, (one, two, three, one, two, gone), strict=True))
        lines, coming = [], []
        for offset, person in w.rng.sample(planned, 6):
            start = f"{w.day(offset)} {w.rng.randrange(9, 20):02}:{w.rng.choice(('00', '20', '45'))}"
            what = f"{w.rng.choice(('Brunch', 'Sauna', 'Bike ride', 'Picnic', 'Museum'))} with {person.name}"
            lines.append(f"{start} {what}")
            if offset > 0:
                coming.append((start, what, person))
        add_note(w, title, lines, 20)
        text = w.rng.choice(("You have an invitation", "Look into your calendar", "I sent you an invitation"))
        goal = Goal(w, title=title, minutes=w.rng.choice((50, 80, 100)), text=text)
        for start, what, person in coming:
            made = goal.do("calendar.create", title=what, start=start, minutes=goal.slots["minutes"])
            goal.do("calendar.invite", event_id=made["event_id"], email=person.email)
        for person in (one, two, three):
            goal.do("phone.send_message", number=person.phone, text=text)
        return goal

    def solve(self, title: str, minutes: int, text: str) -> None:
        # I look for the note and read it.
        log_in("notes", "contacts", "calendar", "phone")
        found = apis.notes.search(query=title)
        lines = shown(apis.notes.show(note_id=found[0]["id"])["body"].splitlines())
        # I keep the lines that are still to come.
        now = apis.owner.show_time()["now"]
        lines = [line for line in lines if line[:16] > now]
        print(now, lines)
        # I look up everyone in them.
        people = {}
        for line in lines:
            name = line.split(" with ")[1]
            people[name] = apis.contacts.search(query=name)[0]
        print([(name, people[name]["email"], people[name]["phone"]) for name in people])
        # I create the events and invite the people.
        for line in lines:
            made = apis.calendar.create(title=line[17:], start=line[:16], minutes=minutes)
            email = people[line.split(" with ")[1]]["email"]
            print(apis.calendar.invite(event_id=made["event_id"], email=email))
        # I text each of them once.
        for name in people:
            print(apis.phone.send_message(number=people[name]["phone"], text=text))
        # Everything is planned.


class SettleTrip(Scenario, split="test_normal", difficulty=3):
    """Even out what everyone paid according to a note."""

    def prepare(self, w: World) -> Goal:
        act(w, "wallet.add_money", {"card_id": valid_card(w), "amount": 100.0})
        people, share = w.rng.sample(w.others(*CIRCLES), 4), w.rng.randrange(3500, 5000, 5)
        ahead = [w.rng.choice((1, -1)) * w.rng.randrange(205, 800, 5) for _ in people]
        paid = [(w.owner, share - sum(ahead))]
        for person, cents in zip(people, ahead, strict=True):
            first = w.rng.randrange(500, 2000, 5)
            twice = person in people[:2]
            paid += [(person, first), (person, share + cents - first)] if twice else [(person, share + cents)]
        lines = [f"{person.name}: {cents / 100:.2f}" for person, cents in w.rng.sample(paid, len(paid))]
        title = w.rng.choice(("Mountain hut", "Houseboat week", "Festival tent", "Canoe trip", "Ski cabin"))
        add_note(w, title, lines, w.rng.randrange(1, 20))
        goal = Goal(w, title=title)
        for person, cents in zip(people, ahead, strict=True):
            api = "wallet.send" if cents > 0 else "wallet.request"
            goal.do(api, email=person.email, amount=abs(cents) / 100, note=title)
        return goal

    def solve(self, title: str) -> None:
        # I look for the note and read it; I also need my owner's name.
        log_in("notes", "contacts", "wallet")
        found = apis.notes.search(query=title)
        body = apis.notes.show(note_id=found[0]["id"])["body"]
        me = apis.owner.show_profile()["name"]
        print(me, body)
        # I add up what each person paid.
        payments = [line.split(": ") for line in body.splitlines()]
        paid = dict.fromkeys([name for name, amount in payments], 0.0)
        for name, amount in payments:
            paid[name] += float(amount)
        share = sum(paid.values()) / len(paid)
        print(paid, share)
        # Everyone but my owner gets or owes the difference.
        for name in paid:
            if name != me:
                email = apis.contacts.search(query=name)[0]["email"]
                rest = round(paid[name] - share, 2)
                if rest > 0:
                    print(apis.wallet.send(email=email, amount=rest, note=title))
                if rest < 0:
                    print(apis.wallet.request(email=email, amount=-rest, note=title))
        # All is settled.


class PartySupplies(Scenario, split="test_normal", difficulty=3):
    """Order something for everyone who comes, and plan for its arrival."""

    def prepare(self, w: World) -> Goal:
        w.run("DELETE FROM shop_cart WHERE owner = ?", w.owner.id)
        product, place = w.rng.choice(products(w)), w.rng.choice(("home", "work"))
        w.run("UPDATE shop_products SET stock = 30 WHERE id = ?", product["id"])
        title, (name, list_id) = w.rng.choice(PARTIES), some_list(w)
        text = w.rng.choice(("unpack the parcel", "wait for the delivery", "check the parcel"))
        for day in (w.day(-20), w.day(w.rng.randrange(9, 25))):
            guests = w.rng.sample(w.others(*CIRCLES), 9)
            answers = answers_of(w, guests, accepted=w.rng.randrange(3, 7), open=3, declined=4)
            add_event(w, w.owner, title, f"{day} 19:40", answers)
        goal = Goal(w, title=title, product=product["name"], place=place, text=text, list_name=name)
        coming = list(answers.values()).count("accepted")
        goal.do("shop.add_to_cart", product_id=product["id"], quantity=coming + 1)
        order = goal.do("shop.place_order", address_id=address_of(w, place), card_id=valid_card(w))
        goal.do("todo.add", list_id=list_id, text=text, due=order["arrives"])
        return goal

    def solve(self, title: str, product: str, place: str, text: str, list_name: str) -> None:
        # I look for the event among those to come.
        log_in("calendar", "shop", "todo")
        found = shown(apis.calendar.list_upcoming(query=title))
        # I collect its guests from all pages and count those who come.
        guests = every(apis.calendar.list_guests(event_id=found[0]["id"]))
        coming = shown([g["name"] for g in guests if g["answer"] == "accepted"])
        # I look for the product, the address and the card.
        wanted = apis.shop.search(query=product)
        address = [a["id"] for a in apis.owner.list_addresses() if a["label"] == place][0]
        debit = [c["id"] for c in apis.owner.list_cards() if c["label"] == "debit"][0]
        print(wanted, address, debit)
        # I order one for each of them and one for my owner.
        count = len(coming) + 1
        print(apis.shop.add_to_cart(product_id=wanted[0]["id"], quantity=count))
        order = shown(apis.shop.place_order(address_id=address, card_id=debit))
        # The item on the list is due when it arrives.
        here = [x["id"] for x in apis.todo.list_lists() if x["name"] == list_name][0]
        print(apis.todo.add(list_id=here, text=text, due=order["arrives"]))
        # Everything is prepared.


class RepairDates(Scenario, split="test_normal", difficulty=3):
    """Accept the dates in a mail on which the owner is free, and reply with the others."""

    def prepare(self, w: World) -> Goal:
        (landlord,), other = w.others("landlord"), w.rng.choice(w.others("friends"))
        days = w.rng.sample(empty_days(w), 6)
        busy, free = days[:2], days[2 : w.rng.choice((5, 6))]
        for day in busy:
            add_event(w, w.owner, w.rng.choice(EVENTS), f"{day} {w.rng.choice(('11:00', '16:00', '19:00'))}")
        jobs = ("New boiler", "Window frames", "Kitchen tap", "Smoke alarms", "Door lock", "Balcony rail")
        job_on = dict(zip(days, w.rng.sample(jobs, len(jobs)), strict=True))
        lines = [f"{day}: {job_on[day]}" for day in w.rng.sample([*busy, *free], len(busy) + len(free))]
        body, outdated = "\n".join(lines), "\n".join(f"{day}: {job_on[day]}" for day in days[1:])
        subject = w.rng.choice(("Repairs", "Work in the flat", "Craftsmen"))
        deliver(w, landlord.name, landlord.email, subject, outdated, w.ago(9))
        mail = deliver(w, landlord.name, landlord.email, subject, body, w.ago(hours=w.rng.randrange(20, 60)))
        deliver(w, other.name, other.email, subject, outdated, w.ago(hours=3))
        time, minutes = w.rng.choice(("07:30", "08:00", "09:15")), w.rng.choice((90, 120, 180))
        goal = Goal(w, subject=subject, time=time, minutes=minutes)
        for day in free:
            goal.do("calendar.create", title=job_on[day], start=f"{day} {time}", minutes=minutes)
        goal.do("mail.reply", message_id=mail, body=", ".join(sorted(busy)))
        return goal

    def solve(self, subject: str, time: str, minutes: int) -> None:
        # I look for the landlord in the contacts.
        log_in("contacts", "mail", "calendar")
        cards = apis.contacts.search(query="landlord")
        sender = shown([c["email"] for c in cards if c["relation"] == "landlord"][0])
        # The newest mail comes first; I read it.
        found = apis.mail.search(query=subject, sender=sender)
        body = shown(apis.mail.show(message_id=found[0]["id"])["body"])
        # I look at the calendar for each date.
        jobs = [line.split(": ") for line in body.splitlines()]
        taken = shown([day for day, job in jobs if apis.calendar.list_day(day=day)])
        # Where there is nothing yet, the job goes into the calendar.
        for day, job in jobs:
            if day not in taken:
                start = day + f" {time}"
                print(apis.calendar.create(title=job, start=start, minutes=minutes))
        # I reply with the other dates.
        print(apis.mail.reply(message_id=found[0]["id"], body=", ".join(sorted(taken))))
        # The dates are settled.


class ChaseDebts(Scenario, split="test_normal", difficulty=3):
    """Text those who owe the owner much in all, and put them on a list."""

    def prepare(self, w: World) -> Goal:
        asked = "SELECT payer FROM wallet_requests WHERE owner = ? AND status = 'open'"
        busy = {row["payer"] for row in w.all(asked, w.owner.id)}
        one, two, three, four = w.rng.sample([p for p in w.others(*CIRCLES) if p.id not in busy], 4)
        for person, low, high in ((one, 22, 29), (one, 22, 29), (two, 17, 22), (two, 14, 20), (two, 15, 20)):
            self._ask(w, person, low, high)
        for person, low, high in ((three, 20, 30), (four, 5, 9), (four, 5, 9)):
            self._ask(w, person, low, high)
        w.run("UPDATE wallet_requests SET status = 'paid' WHERE id = ?", self._ask(w, three, 40, 60))
        totals = "SELECT payer, sum(amount_cents) AS cents FROM wallet_requests WHERE owner = ? AND status = 'open'"
        owed = w.all(f"{totals} GROUP BY payer ORDER BY payer", w.owner.id)
        limits = [limit for limit in range(31, 43) if all(row["cents"] != 100 * limit for row in owed)]
        name, list_id = some_list(w)
        goal = Goal(w, limit=w.rng.choice(limits), list_name=name)
        for row in owed:
            if row["cents"] > 100 * goal.slots["limit"]:
                person = w.people[row["payer"] - 1]
                goal.do("phone.send_message", number=person.phone, text=f"You owe me {row['cents'] / 100:.2f}")
                goal.do("todo.add", list_id=list_id, text=f"Debt of {person.name}")
        return goal

    @staticmethod
    def _ask(w: World, person: Person, low: int, high: int) -> int:
        at = w.ago(w.rng.randrange(1, 50), hours=1)
        return add_request(w, w.owner, person, amount_between(w, low, high), w.rng.choice(THINGS), at)

    def solve(self, limit: int, list_name: str) -> None:
        # I collect my open requests from all pages and add them up by name.
        log_in("wallet", "contacts", "phone", "todo")
        requests = every(apis.wallet.list_sent_requests(status="open"))
        sums = dict.fromkeys([r["name"] for r in requests], 0.0)
        for r in requests:
            sums[r["name"]] += r["amount"]
        print(sums)
        # I keep those above {limit} and look up their numbers.
        names = [name for name in sums if sums[name] > limit]
        numbers = [apis.contacts.search(query=name)[0]["phone"] for name in names]
        print(names, numbers)
        # I text each of them.
        for name, number in zip(names, numbers, strict=True):
            said = f"You owe me {sums[name]:.2f}"
            print(apis.phone.send_message(number=number, text=said))
        # They also go on the list.
        here = [x["id"] for x in apis.todo.list_lists() if x["name"] == list_name][0]
        for name in names:
            print(apis.todo.add(list_id=here, text="Debt of " + name))
        # All are told.


class TriageInbox(Scenario, split="test_normal", difficulty=3):
    """Sort the unread mails by who sent them."""

    def prepare(self, w: World) -> Goal:
        relation, (name, list_id) = w.rng.choice(("friend", "colleague", "flatmate")), some_list(w)
        family, close = w.rng.sample(w.others("family"), 3), w.rng.sample(w.others(relation), 2)
        real = [*family, *close, *w.others("services")]
        senders = [(person.name, person.email) for person in real]
        for fake in (family[0], close[0]):
            senders.append((fake.name, f"{fake.first}{w.rng.randrange(100, 1000)}@prizes.net".lower()))
        senders += [(firm, f"news@{firm.replace(' ', '').lower()}.com") for firm in w.rng.sample(FIRMS, 2)]
        for number, (sender, address) in enumerate(w.rng.sample(senders, len(senders))):
            subject = f"{w.rng.choice(SUBJECTS)} {number + 1}"
            deliver(w, sender, address, subject, "Please read this.", w.ago(hours=w.rng.randrange(2, 400)))
        relations = {person.email: person.relation for person in w.others()}
        goal = Goal(w, relation=relation, list_name=name)
        unread = "SELECT * FROM mail_messages WHERE owner = ? AND folder = 'inbox' AND NOT read ORDER BY id"
        for row in w.all(unread, w.owner.id):
            known = relations.get(row["address"])
            if known is None:
                goal.do("mail.delete", message_id=row["id"])
            elif known == relation:
                goal.do("mail.star", message_id=row["id"])
            elif known in ("mother", "father", "sister", "brother"):
                goal.do("todo.add", list_id=list_id, text=f"Answer {row['sender']}: {row['subject']}")
        return goal

    def solve(self, relation: str, list_name: str) -> None:
        # I need the relation of every address in the contacts.
        log_in("mail", "contacts", "todo")
        cards = every(apis.contacts.search(query=""))
        relations = {c["email"]: c["relation"] for c in cards}
        print(len(relations))
        # I collect the unread mails from all pages, and show each to see its address.
        unread = every(apis.mail.list_unread())
        mails = [apis.mail.show(message_id=m["id"]) for m in unread]
        print([(m["sender"], relations.get(m["address"])) for m in mails])
        # I need the id of the {list_name} list.
        here = shown([x["id"] for x in apis.todo.list_lists() if x["name"] == list_name][0])
        # Now I deal with each mail.
        for m in mails:
            known = relations.get(m["address"])
            if known is None:
                apis.mail.delete(message_id=m["id"])
            elif known == relation:
                apis.mail.star(message_id=m["id"])
            elif known in ("mother", "father", "sister", "brother"):
                text = "Answer " + m["sender"] + ": " + m["subject"]
                print(apis.todo.add(list_id=here, text=text))
        # The inbox is sorted.


class MovingHouse(Scenario, split="test_normal", difficulty=3):
    """Prepare a move: addresses, a mail, orders on their way and the calendar."""

    def prepare(self, w: World) -> Goal:
        near, next_door = w.rng.sample(w.others("friends", "colleagues"), 2)
        number, _, road = w.owner.address.partition(" ")
        w.run("UPDATE contacts SET address = ? WHERE id = ?", w.owner.address, card_of(w, near))
        w.run("UPDATE contacts SET address = ? WHERE id = ?", f"{int(number) + 1} {road}", card_of(w, next_door))
        for status in w.rng.sample(["placed"] * 5 + ["shipped"] * 2, 7):
            items = {row["id"]: w.rng.randrange(1, 4) for row in w.rng.sample(products(w), 2)}
            past_order(w, w.ago(hours=w.rng.randrange(2, 90)), status, items)
        relation = w.rng.choice(("friend", "colleague"))
        add_lookalike(w, relation)
        street = f"{w.rng.randrange(100, 300)} {w.rng.choice(('Abbey Street', 'Lime Grove', 'Canal Walk'))}"
        goal = Goal(w, street=street, day=w.day(w.rng.randrange(10, 60)), relation=relation)
        here = "SELECT id FROM contacts WHERE owner = ? AND address = ? ORDER BY id"
        for row in w.all(here, w.owner.id, w.owner.address):
            goal.do("contacts.update", contact_id=row["id"], address=street)
        to = [person.email for person in w.others(relation)]
        goal.do("mail.send", to=to, subject="New address", body=street)
        for row in w.all("SELECT id FROM shop_orders WHERE owner = ? AND status = 'placed'", w.owner.id):
            goal.do("shop.cancel_order", order_id=row["id"])
        goal.do("calendar.create", title="Moving day", start=f"{goal.slots['day']} 08:00", minutes=480)
        return goal

    def solve(self, street: str, day: str, relation: str) -> None:
        # I need my owner's home address, and all contacts in full.
        log_in("contacts", "mail", "shop", "calendar")
        home = [a["street"] for a in apis.owner.list_addresses() if a["label"] == "home"][0]
        briefs = every(apis.contacts.search(query=""))
        cards = [apis.contacts.show(contact_id=c["id"]) for c in briefs]
        here = [c for c in cards if c["address"] == home]
        print(home, [c["name"] for c in here])
        # I change the addresses of these.
        for c in here:
            print(apis.contacts.update(contact_id=c["id"], address=street))
        # I write to the {relation}s.
        to = [c["email"] for c in cards if c["relation"] == relation]
        print(to, apis.mail.send(to=to, subject="New address", body=street))
        # I collect the orders that are not shipped, and cancel them.
        orders = every(apis.shop.list_orders(status="placed"))
        for o in orders:
            print(o["id"], apis.shop.cancel_order(order_id=o["id"]))
        # Now the calendar.
        print(apis.calendar.create(title="Moving day", start=f"{day} 08:00", minutes=480))
        # The move is prepared.


class ReturnCategory(Scenario, split="test_normal", difficulty=3):
    """Return what was delivered of a category since a day, unless it is returned already."""

    def prepare(self, w: World) -> Goal:
        category, border = w.rng.choice(("kitchen", "office", "sport", "home")), w.rng.randrange(30, 60)
        of_kind, rest = (w.rng.sample(products(w, f"category {sign} ?", category), 5) for sign in ("=", "!="))
        placed = [(border - 20, "delivered"), (border - 10, "delivered"), (border, "delivered")]
        placed += [(border + 1, "delivered"), (2, "shipped")]
        for (days, status), product, other in zip(placed, of_kind, rest, strict=True):
            order = past_order(w, w.ago(days), status, {product["id"]: w.rng.randrange(1, 4), other["id"]: 1})
            if days == border - 20:
                item = w.value("SELECT id FROM shop_items WHERE order_id = ? AND product = ?", order, product["id"])
                reason = {"reason": "wrong item", "at": w.ago(2), "status": "open"}
                w.add("shop_returns", owner=w.owner.id, item=item, **reason)
        goal = Goal(w, category=category, day=w.day(-border))
        wanted = (
            "SELECT i.* FROM shop_items i JOIN shop_orders o ON o.id = order_id JOIN shop_products p ON p.id = product "
            "WHERE i.owner = ? AND i.status = 'delivered' AND o.at >= ? AND category = ? "
            "AND i.id NOT IN (SELECT item FROM shop_returns) ORDER BY i.id"
        )
        cents = 0
        for row in w.all(wanted, w.owner.id, goal.slots["day"], category):
            cents += row["price_cents"] * row["quantity"]
            goal.do("shop.start_return", order_id=row["order_id"], product_id=row["product"], reason="not needed")
        goal.answer = cents / 100
        return goal

    def solve(self, category: str, day: str) -> None:
        # I collect the delivered orders since {day} from all pages.
        orders = every(apis.shop.list_orders(status="delivered"))
        recent = shown([o["id"] for o in orders if o["at"] >= day])
        # I need to know what is being returned already.
        returns = every(apis.shop.list_returns())
        done = shown([(r["order_id"], r["name"]) for r in returns])
        # I look through the items of the orders for those of the category.
        found = []
        for id in recent:
            for item in apis.shop.show_order(order_id=id)["items"]:
                kind = apis.shop.show_product(product_id=item["product_id"])["category"]
                if kind == category and (id, item["name"]) not in done:
                    found.append((id, item))
        print([(id, item["name"], item["price"], item["quantity"]) for id, item in found])
        # I return them.
        for id, item in found:
            product = item["product_id"]
            apis.shop.start_return(order_id=id, product_id=product, reason="not needed")
        # I answer with what they cost.
        total = sum([item["price"] * item["quantity"] for id, item in found])
        apis.owner.complete_task(answer=round(total, 2))


class CommonDate(Scenario, split="test_normal", difficulty=3):
    """Find the date that suits everybody, and invite them."""

    def prepare(self, w: World) -> Goal:
        relation, title = w.rng.choice(("friend", "colleague")), w.rng.choice(PARTIES)
        people, free = w.others(relation), w.rng.sample(empty_days(w), 9)
        meant, busy, outdated, *others = free
        add_event(w, w.owner, w.rng.choice(EVENTS), f"{busy} {w.rng.choice(('09:00', '14:00'))}")
        for person, mine in zip(people, (others[:3], others[2:5], [others[0], *others[4:]]), strict=True):
            for dates, hours in (([outdated, *mine], 30), ([meant, busy, *mine], w.rng.randrange(1, 4))):
                *some, last = w.rng.sample(dates, len(dates))
                text = w.rng.choice(("I can do {} or {}", "These work for me: {} and {}", "I am free on {} and {}"))
                receive(w, person.phone, text.format(", ".join(some), last), hours)
            reply = {"incoming": 0, "text": "Thanks, I will see", "time": w.ago(hours=0.5)}
            w.add("phone_messages", owner=w.owner.id, number=person.phone, **reply)
        add_lookalike(w, relation)
        time, minutes = w.rng.choice(("18:15", "19:00", "20:30")), w.rng.choice((90, 120, 150))
        goal = Goal(w, relation=relation, title=title, time=time, minutes=minutes)
        event = goal.do("calendar.create", title=title, start=f"{meant} {time}", minutes=minutes)["event_id"]
        for person in people:
            goal.do("calendar.invite", event_id=event, email=person.email)
            goal.do("phone.send_message", number=person.phone, text=meant)
        return goal

    def solve(self, relation: str, title: str, time: str, minutes: int) -> None:
        # I look for my owner's {relation}s.
        log_in("contacts", "phone", "calendar")
        cards = apis.contacts.search(query=relation, page_size=20)
        people = [c for c in cards if c["relation"] == relation]
        print([c["name"] for c in people])
        # The newest text comes first; I take the last one that each of them sent.
        said = []
        for c in people:
            texts = apis.phone.show_conversation(number=c["phone"], page_size=20)
            said.append([t["text"] for t in texts if t["incoming"]][0])
            print(said[-1])
        # I look for the dates that are in all of them, and for those on which the calendar is empty.
        import re

        common = [day for day in re.findall(r"\d+-\d+-\d+", said[0]) if all([day in one for one in said])]
        free = [day for day in common if not apis.calendar.list_day(day=day)]
        print(common, free)
        # There is one; I create the event and invite them.
        start = free[0] + f" {time}"
        made = apis.calendar.create(title=title, start=start, minutes=minutes)
        for c in people:
            print(apis.calendar.invite(event_id=made["event_id"], email=c["email"]))
        # I text them the date.
        for c in people:
            print(apis.phone.send_message(number=c["phone"], text=free[0]))
        # Everyone knows the date.


class CallBackList(Scenario, split="test_normal", difficulty=3):
    """List the contacts whose missed calls were never returned."""

    def prepare(self, w: World) -> Goal:
        border = w.rng.randrange(8, 20)
        returned, answered, waiting, twice, again, late = w.rng.sample(w.others(), 6)
        plan = [
            *((returned, "missed", 5), (returned, "outgoing", 4), (answered, "missed", 6), (answered, "incoming", 2)),
            *((waiting, "outgoing", 7), (waiting, "missed", 3), (twice, "missed", 1), (twice, "missed", 5)),
            *((again, "missed", 6), (again, "incoming", 5), (again, "missed", 2), (late, "missed", border + 1)),
        ]
        for person, kind, days in plan:
            minutes = 0 if kind == "missed" else w.rng.randrange(1, 20)
            add_call(w, person.phone, kind, days + 0.1 * w.rng.random(), minutes)
        add_call(w, strangers(w, 1)[0], "missed", 1)
        day, (name, list_id) = w.day(-border), some_list(w)
        goal = Goal(w, day=day, list_name=name, due=w.day(w.rng.randrange(1, 5)))
        unanswered = (
            "SELECT name FROM contacts c WHERE owner = ?1 AND (SELECT max(time) FROM phone_calls WHERE owner = ?1 "
            "AND number = phone AND kind = 'missed' AND time >= ?2) > coalesce((SELECT max(time) FROM phone_calls "
            "WHERE owner = ?1 AND number = phone AND kind != 'missed'), '') ORDER BY id"
        )
        for row in w.all(unanswered, w.owner.id, day):
            text = f"Call back {row['name']}"
            goal.do("todo.add", list_id=list_id, text=text, due=goal.slots["due"], priority="high")
        return goal

    def solve(self, day: str, list_name: str, due: str) -> None:
        # I collect all calls from all pages, the newest first.
        log_in("phone", "contacts", "todo")
        calls = every(apis.phone.list_calls())
        print(len(calls))
        # The last call with each number says whether it was missed.
        last = {}
        for c in calls:
            if c["number"] not in last:
                last[c["number"]] = c
        missed = shown([number for number in last if last[number]["kind"] == "missed" and last[number]["time"] >= day])
        # I keep those that are in the contacts.
        names = []
        for number in missed:
            names += [c["name"] for c in apis.contacts.search(query=number)]
        print(names)
        # I add an item for each.
        here = [x["id"] for x in apis.todo.list_lists() if x["name"] == list_name][0]
        for name in names:
            text = "Call back " + name
            print(apis.todo.add(list_id=here, text=text, due=due, priority="high"))
        # The list is made.
