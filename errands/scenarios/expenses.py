"""Scenarios around shared expenses."""

from typing import Any

from errands.apps.expenses import list_debts
from errands.apps.mail import deliver
from errands.judge import Goal
from errands.people import Person
from errands.scenario import Scenario
from errands.scenarios.files import put_file
from errands.world import World
from errands.written import every, log_in


def put_group(w: World, name: str, people: list[Person]) -> int:
    """A new group; its id."""
    group = w.add("expenses_groups", name=name)
    for person in people:
        w.add("expenses_members", grp=group, person=person.id)
    return group


def put_expense(w: World, group: int, payer: Person, title: str, amount: int, days: int) -> int:
    """An expense of so many cents, so many days ago, for all members of a group, which must divide it; its id."""
    item = w.add("expenses_items", grp=group, payer=payer.id, title=title, amount_cents=amount, day=w.day(-days))
    members = w.all("SELECT person FROM expenses_members WHERE grp = ? ORDER BY person", group)
    assert amount % len(members) == 0
    for row in members:
        w.add("expenses_shares", item=item, amount_cents=amount // len(members), **row)
    return item


def own_group(w: World, name: str) -> int:
    """The owner's group of this name; others may have one of the same name."""
    sql = "SELECT g.id FROM expenses_groups g JOIN expenses_members ON grp = g.id WHERE name = ? AND person = ?"
    return int(w.value(sql, name, w.owner.id))


class AddSharedExpense(Scenario):
    """Add an expense that the owner paid to a group."""

    split, difficulty = "test_challenge", 1
    apis = ("expenses.list_groups", "expenses.add_expense")
    phrasings = (
        "I paid {amount} for '{title}'. Add it to the shared expenses of the group '{group}', split between everyone.",
        "Add '{title}' to the expenses of my group '{group}': {amount}, paid by me today, for all members.",
        "Put an expense of {amount} with the title '{title}' into the group '{group}'. I paid, all share it equally.",
        "In the shared expenses of '{group}', note that I have paid {amount} for everyone, as '{title}'.",
    )

    def prepare(self, w: World) -> Goal:
        group = w.rng.choice(("Flat", "Mountain trip", "Lunch club"))
        title = w.rng.choice(("Map", "Candles", "Parking", "Fruit basket", "Batteries"))
        amount = w.rng.randrange(500, 6000)
        goal = Goal(w, group=group, title=title, amount=f"{amount / 100:.2f}")
        goal.do("expenses.add_expense", group_id=own_group(w, group), title=title, amount=amount / 100)
        return goal

    @staticmethod
    def solve(apis: Any, group: str, title: str, amount: float) -> None:
        # I look for the group.
        expenses = log_in("expenses")
        groups = apis.expenses.list_groups(access_token=expenses)
        print([(g["id"], g["name"]) for g in groups])
        # I add the expense; without more said, I paid it today and all members share it.
        shared = [g for g in groups if g["name"] == group][0]["id"]
        apis.expenses.add_expense(group_id=shared, title=title, amount=amount, access_token=expenses)
        # The expense is added.
        apis.owner.complete_task()


class PaidSince(Scenario):
    """Add up what a member has paid in a group since a day."""

    split, difficulty = "test_challenge", 2
    apis = ("expenses.list_groups", "expenses.list_expenses")
    phrasings = (
        "How much has {name} paid in the expense group '{group}' since {day}?",
        "In my shared expenses of '{group}': what is the sum of all that {name} paid since {day}?",
        "Add up the expenses in the group '{group}' that {name} has paid since {day}.",
        "I want to know the total {name} paid for the group '{group}' since {day}. It is in the shared expenses.",
    )

    def prepare(self, w: World) -> Goal:
        name = w.rng.choice(("Flat", "Mountain trip", "Lunch club"))
        group = own_group(w, name)
        members = w.all("SELECT person FROM expenses_members WHERE grp = ? AND person > 1 ORDER BY person", group)
        person = w.people[w.rng.choice(members)["person"] - 1]
        for title in ("Napkins", "Juice", "Tea"):
            put_expense(w, group, person, title, 12 * w.rng.randrange(50, 300), w.rng.randrange(2, 50))
        taken = {row["day"] for row in w.all("SELECT day FROM expenses_items WHERE grp = ?", group)}
        day = next(w.day(-days) for days in range(w.rng.randrange(50, 80), 120) if w.day(-days) not in taken)
        goal = Goal(w, name=person.name, group=name, day=day)
        sql = "SELECT sum(amount_cents) FROM expenses_items WHERE grp = ? AND payer = ? AND day >= ?"
        goal.answer = w.value(sql, group, person.id, day) / 100
        return goal

    @staticmethod
    def solve(apis: Any, name: str, group: str, day: str) -> None:
        # I look for the group.
        expenses = log_in("expenses")
        groups = apis.expenses.list_groups(access_token=expenses)
        shared = [g for g in groups if g["name"] == group][0]
        print(shared)
        # I go through all its expenses and keep what {name} paid since {day}.
        all = every(apis.expenses.list_expenses(group_id=shared["id"], access_token=expenses))
        paid = [e for e in all if e["paid_by"] == name and e["day"] >= day]
        print(len(all), [(e["day"], e["amount"]) for e in paid])
        # I answer with the sum.
        apis.owner.complete_task(answer=round(sum(e["amount"] for e in paid), 2))


class CorrectFromReceipt(Scenario):
    """Correct an expense by the total of a receipt that is among the files."""

    split, difficulty = "test_challenge", 2
    apis = ("files.search", "files.show", "expenses.list_expenses", "expenses.update_expense")
    phrasings = (
        "The amount of '{title}' in my shared expenses is wrong. Set it to the total of the receipt in my file {name}.",
        "Please correct the shared expense '{title}': the right amount is the total in the file {name}.",
        "My file {name} is the receipt for '{title}'. Change the amount of that shared expense to the total on it.",
        "Compare the shared expense '{title}' with my file {name}, and give it the total that stands in the file.",
    )

    def prepare(self, w: World) -> Goal:
        title, other, word = w.rng.choice(
            (
                ("Paint", "Paint rollers", "paint"),
                ("Barbecue", "Barbecue tongs", "grill"),
                ("Tent", "Tent pegs", "tent"),
            )
        )
        group = own_group(w, w.rng.choice(("Flat", "Mountain trip", "Lunch club")))
        payer = w.people[
            w.value("SELECT person FROM expenses_members WHERE grp = ? AND person > 1 ORDER BY id", group) - 1
        ]
        item = put_expense(w, group, payer, title, 1200 + 12 * w.rng.randrange(100), 12)
        put_expense(w, group, payer, other, 1200, 5)
        parts = [w.rng.randrange(900, 2500) for _ in range(3)]
        total = sum(parts)
        lines = [f"item {number}: {part / 100:.2f}" for number, part in enumerate(parts, start=1)]
        text = "\n".join(
            ["Receipt", *lines, f"total: {total / 100:.2f}", f"paid in cash: {total // 1000 * 10 + 10}.00"]
        )
        name = f"{word}-{w.rng.randrange(100, 999)}.txt"
        put_file(w, w.owner.id, "Downloads", name, 12, text)
        goal = Goal(w, title=title, name=name)
        goal.do("expenses.update_expense", expense_id=item, amount=total / 100)
        return goal

    @staticmethod
    def solve(apis: Any, title: str, name: str) -> None:
        # First the receipt.
        files, expenses = log_in("files", "expenses")
        found = apis.files.search(query=name, access_token=files)
        text = apis.files.show(file_id=found[0]["id"], access_token=files)["text"]
        print(text)
        # Then the expense, by its exact title.
        items = every(apis.expenses.list_expenses(query=title, access_token=expenses))
        item = [e for e in items if e["title"] == title][0]
        print(item)
        # I set the amount to the total of the receipt.
        total = float([line for line in text.splitlines() if line.startswith("total: ")][0].split(": ")[1])
        print(total, apis.expenses.update_expense(expense_id=item["id"], amount=total, access_token=expenses))
        # The expense is corrected.
        apis.owner.complete_task()


class SettleMyDebts(Scenario):
    """Pay everyone in a group what the owner owes, record it, and tell them."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("expenses.list_groups", "expenses.list_debts", "wallet.send", "expenses.settle_up"),
        *("contacts.search", "phone.send_message"),
    )
    phrasings = (
        "Settle what I owe in the expense group '{group}': send the money by wallet with the note '{note}', record "
        "each repayment in the group, and text '{text}' to everyone I paid.",
        "Pay my debts in the shared expenses of '{group}'. Use the wallet, with the note '{note}', record the "
        "repayments there, and let each of those I paid know by the text message '{text}'.",
        "I want to owe nothing any more in the group '{group}'. Look whom I have to pay how much, send it by wallet "
        "(note '{note}'), record it as settled, and send each of them the text '{text}'.",
        "Please clear my debts in the expense group '{group}': wallet payments with the note '{note}', a recorded "
        "repayment for each, and a text message '{text}' to each person paid.",
    )

    def prepare(self, w: World) -> Goal:
        name = w.rng.choice(("Sailing weekend", "Museum tour", "Canoe trip"))
        others = w.rng.sample(w.others("friends", "colleagues", "family"), 2)
        group = put_group(w, name, [w.owner, *others])
        for person, title in zip(others, ("Tickets", "Meals"), strict=True):
            put_expense(w, group, person, title, 3 * w.rng.randrange(1700, 2400), w.rng.randrange(3, 20))
        put_expense(w, group, w.owner, "Snacks", 3 * w.rng.randrange(50, 300), 2)
        slots = {
            "note": f"{name} debts",
            "text": w.rng.choice(("I have sent you my share", "We are even now", "Money is on the way")),
        }
        goal = Goal(w, group=name, **slots)
        for debt in list_debts(w, w.owner.id, group):
            assert debt["debtor"] == w.owner.email
            to = next(person for person in others if person.email == debt["creditor"])
            goal.do("wallet.send", email=to.email, amount=debt["amount"], note=slots["note"])
            paid = {"paid_by": w.owner.email, "paid_to": to.email, "amount": debt["amount"]}
            goal.do("expenses.settle_up", group_id=group, **paid)
            goal.do("phone.send_message", number=to.phone, text=slots["text"])
        return goal

    @staticmethod
    def solve(apis: Any, group: str, note: str, text: str) -> None:
        # I look for the group and who owes whom in it.
        expenses, wallet, contacts, phone = log_in("expenses", "wallet", "contacts", "phone")
        groups = apis.expenses.list_groups(access_token=expenses)
        shared = [g for g in groups if g["name"] == group][0]
        debts = apis.expenses.list_debts(group_id=shared["id"], access_token=expenses)
        print(shared, debts)
        # I keep the debts of my owner, and look up the people for their numbers.
        me = apis.owner.show_account(app="expenses")["email"]
        mine = [d for d in debts if d["debtor"] == me]
        cards = [apis.contacts.search(query=d["creditor"], access_token=contacts)[0] for d in mine]
        print(cards)
        # I send the money and record each payment.
        for d in mine:
            to, amount = d["creditor"], d["amount"]
            print(apis.wallet.send(email=to, amount=amount, note=note, access_token=wallet))
            apis.expenses.settle_up(group_id=shared["id"], paid_by=me, paid_to=to, amount=amount, access_token=expenses)
        # Now I tell them.
        for card in cards:
            print(apis.phone.send_message(number=card["phone"], text=text, access_token=phone))
        # All is paid, recorded and told.
        apis.owner.complete_task()


class SplitTheBill(Scenario):
    """Make a group of the guests of an event, split a bill that came by mail, and ask for the shares."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("calendar.search", "calendar.list_guests", "mail.search", "mail.show"),
        *("expenses.create_group", "expenses.add_expense", "wallet.request"),
    )
    phrasings = (
        "I paid for '{event}'; the bill came by mail from {sender}. Make an expense group '{group}' of me and the "
        "guests who accepted, add the bill as '{title}', and ask each of them by wallet for an equal share, with the "
        "note '{note}'.",
        "The bill of '{event}' is in a mail from {sender}, and I paid it. Please found the expense group '{group}' "
        "with all guests who had accepted, put the total in as '{title}', split equally, and request everyone's share "
        "by wallet with the note '{note}'.",
        "Split the bill that {sender} mailed me among those who accepted my calendar event '{event}' and me: a new "
        "expense group '{group}', one expense '{title}' that I paid, and wallet requests with the note '{note}'.",
        "All who accepted '{event}' (see the calendar) and I share the bill from {sender} (see my mail), which I paid. "
        "Make the expense group '{group}', add the expense '{title}', and request the shares by wallet, note '{note}'.",
    )

    def prepare(self, w: World) -> Goal:
        sender, event = w.rng.choice(
            (("Bistro Lindgren", "Summer dinner"), ("Trattoria Sole", "Pasta evening"), ("Taverna Kali", "Greek night"))
        )
        guests = w.rng.sample(w.others("friends", "colleagues", "family"), 5)
        days = w.rng.randrange(2, 9)
        row = {"title": event, "start": f"{w.day(-days)} 20:00", "minutes": 120, "place": sender}
        id = w.add("calendar_events", owner=w.owner.id, **row)
        answers = w.rng.sample(["accepted", "accepted", "accepted", "declined", "open"], 5)
        for guest, answer in zip(guests, answers, strict=True):
            w.add("calendar_guests", event_id=id, guest=guest.id, answer=answer)
        total = 4 * w.rng.randrange(1500, 3500)
        address = f"office@{sender.split()[1].lower()}.com"
        bill = f"Thank you for your visit.\nDrinks: {total / 400:.2f}\nTotal: {total / 100:.2f}\nTip not included."
        deliver(w, sender, address, "Your bill", bill, w.ago(hours=3))
        deliver(w, sender, address, "New opening hours", "We now open at noon.", w.ago(hours=2))
        slots = {"group": f"{event} group", "title": "Restaurant", "note": f"{event} share"}
        goal = Goal(w, event=event, sender=sender, **slots)
        emails = [guest.email for guest, answer in zip(guests, answers, strict=True) if answer == "accepted"]
        made = goal.do("expenses.create_group", name=slots["group"], emails=emails)
        goal.do("expenses.add_expense", **made, title=slots["title"], amount=total / 100)
        for email in emails:
            goal.do("wallet.request", email=email, amount=total / 400, note=slots["note"])
        return goal

    @staticmethod
    def solve(apis: Any, event: str, sender: str, group: str, title: str, note: str) -> None:
        # I look for the event and its guests.
        calendar, mail, expenses, wallet = log_in("calendar", "mail", "expenses", "wallet")
        this_event = apis.calendar.search(query=event, access_token=calendar)[0]
        print(this_event)
        guests = every(apis.calendar.list_guests(event_id=this_event["id"], access_token=calendar))
        print([(g["email"], g["answer"]) for g in guests])
        # Now the mails of the restaurant.
        mails = apis.mail.search(sender=sender, access_token=mail)
        print([(m["id"], m["subject"]) for m in mails])
        bill = [m for m in mails if "bill" in m["subject"]][0]
        body = apis.mail.show(message_id=bill["id"], access_token=mail)["body"]
        print(body)
        # Those who accepted make the group with my owner; the total is the expense.
        total = float([line for line in body.splitlines() if line.startswith("Total: ")][0].split(": ")[1])
        emails = [g["email"] for g in guests if g["answer"] == "accepted"]
        shared = apis.expenses.create_group(name=group, emails=emails, access_token=expenses)["group_id"]
        print(apis.expenses.add_expense(group_id=shared, title=title, amount=total, access_token=expenses))
        # My owner is one of those who share, so each one's part is the total by all of them and one.
        share = round(total / (len(emails) + 1), 2)
        print(share)
        for email in emails:
            print(apis.wallet.request(email=email, amount=share, note=note, access_token=wallet))
        # The bill is split and everyone asked.
        apis.owner.complete_task()


class RecordRepayments(Scenario):
    """Record what members of a group have paid back by wallet, and remind the others."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("expenses.list_groups", "expenses.show_group", "wallet.search_transactions", "expenses.settle_up"),
        *("contacts.search", "phone.send_message"),
    )
    phrasings = (
        "Some members of my expense group '{group}' have paid me back by wallet with the note '{note}'. Record each of "
        "these repayments in the group, and text the members who have not paid yet: '{text}'",
        "Check who in the expense group '{group}' has sent me money with the note '{note}' in the wallet. Record it in "
        "the group, and send all other members the text message '{text}'",
        "Please bring the expense group '{group}' up to date: wallet payments to me with the note '{note}' are "
        "repayments by its members and have to be recorded. Who has sent nothing gets the text '{text}'",
        "In my wallet there are payments with the note '{note}'. Record those from members of the expense group "
        "'{group}' as repayments to me. Members from whom there is none should get the text message '{text}'",
    )

    def prepare(self, w: World) -> Goal:
        name = w.rng.choice(("Choir outing", "Football trip", "Cooking course"))
        *members, stranger = w.rng.sample(w.others("friends", "colleagues", "family"), 6)
        group = put_group(w, name, [w.owner, *members])
        put_expense(w, group, w.owner, "Fee", 6 * w.rng.randrange(1000, 2500), 20)
        note, text = f"{name.split()[0]} money", w.rng.choice(("Your share is still open", "Please pay your part"))
        order = w.rng.sample([*members[:3], stranger], 4)
        paid = [(person, w.rng.randrange(500, 1500)) for person in order]
        for days, (person, amount) in zip(w.rng.sample(range(1, 19), 4), paid, strict=True):
            _pay(w, person, amount, note, w.ago(days))
        _pay(w, members[3], 700, "taxi", w.ago(2))
        goal = Goal(w, group=name, note=note, text=text)
        for person, amount in paid:
            if person is not stranger:
                values = {"paid_by": person.email, "paid_to": w.owner.email, "amount": amount / 100}
                goal.do("expenses.settle_up", group_id=group, **values)
        for person in members[3:]:
            goal.do("phone.send_message", number=person.phone, text=text)
        return goal

    @staticmethod
    def solve(apis: Any, group: str, note: str, text: str) -> None:
        # I look for the group and its members.
        expenses, wallet, contacts, phone = log_in("expenses", "wallet", "contacts", "phone")
        groups = apis.expenses.list_groups(access_token=expenses)
        shared = [g for g in groups if g["name"] == group][0]["id"]
        members = apis.expenses.show_group(group_id=shared, access_token=expenses)["members"]
        me = apis.owner.show_account(app="expenses")["email"]
        emails = {m["name"]: m["email"] for m in members if m["email"] != me}
        print(emails)
        # Now what came in with this note.
        found = every(apis.wallet.search_transactions(query=note, access_token=wallet))
        found = [t for t in found if t["direction"] == "received" and t["note"] == note]
        print([(t["name"], t["amount"]) for t in found])
        # I record the payments of members only; others are not in the group.
        paid = [t for t in found if t["name"] in emails]
        for t in paid:
            print(
                apis.expenses.settle_up(
                    group_id=shared, paid_by=emails[t["name"]], paid_to=me, amount=t["amount"], access_token=expenses
                )
            )
        # The members without a payment get the text; I need their numbers.
        names = [t["name"] for t in paid]
        for name in emails:
            if name not in names:
                card = apis.contacts.search(query=emails[name], access_token=contacts)[0]
                print(name, apis.phone.send_message(number=card["phone"], text=text, access_token=phone))
        # The group is up to date.
        apis.owner.complete_task()


def _pay(w: World, payer: Person, amount: int, note: str, at: str) -> None:
    """Money that someone has sent to the owner."""
    row = {"amount_cents": amount, "note": note, "at": at}
    w.add("wallet_transactions", owner=payer.id, person=w.owner.id, direction="sent", **row)
    w.add("wallet_transactions", owner=w.owner.id, person=payer.id, direction="received", **row)
    for person, change in ((payer.id, -amount), (w.owner.id, amount)):
        w.run("UPDATE wallet_accounts SET balance_cents = balance_cents + ? WHERE owner = ?", change, person)


SCENARIOS: list[type[Scenario]] = [
    *(AddSharedExpense, PaidSince, CorrectFromReceipt, SettleMyDebts, SplitTheBill, RecordRepayments),
]
