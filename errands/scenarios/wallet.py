"""Scenarios around the wallet."""

from errands.apps.wallet import transfer
from errands.judge import Goal, act
from errands.people import CIRCLES, Person
from errands.scenario import Scenario
from errands.scenarios.mail import mail_from
from errands.world import World
from errands.written import apis, every, log_in, shown

THINGS = ("tickets", "pizza", "flowers", "paint", "petrol", "cake", "museum", "firewood", "stamps", "paddles")
"""Notes that no payment of the base world has."""


def amount_between(w: World, low: int, high: int) -> str:
    """An amount of money as an instruction writes it."""
    return f"{w.rng.randrange(100 * low, 100 * high, 10) / 100:.2f}"


def add_request(w: World, asker: Person, payer: Person, amount: str, note: str, at: str) -> int:
    """An open request from before; its id."""
    people = {"owner": asker.id, "payer": payer.id}
    cents = round(float(amount) * 100)
    return w.add("wallet_requests", **people, amount_cents=cents, note=note, status="open", at=at)


class SendMoneyTo(Scenario, split="train", difficulty=1):
    """Send money to someone."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others(*CIRCLES))
        amount, note = amount_between(w, 3, 50), w.rng.choice(THINGS)
        goal = Goal(w, name=person.name, amount=amount, note=note)
        goal.do("wallet.send", email=person.email, amount=float(amount), note=note)
        return goal

    def solve(self, name: str, amount: float, note: str) -> None:
        # I look up {name} in the contacts to get the email address.
        log_in("contacts", "wallet")
        found = apis.contacts.search(query=name)
        print(found[0]["email"])
        # Now I send the money to this address.
        print(apis.wallet.send(email=found[0]["email"], amount=amount, note=note))
        # The money is sent.


class PayRequestOf(Scenario, split="train", difficulty=1):
    """Pay the open request of someone."""

    def prepare(self, w: World) -> Goal:
        busy = "SELECT count(*) FROM wallet_requests WHERE owner = ? AND payer = ? AND status = 'open'"
        free = [person for person in w.others(*CIRCLES) if not w.value(busy, person.id, w.owner.id)]
        person = w.rng.choice(free)
        at = w.ago(w.rng.randrange(1, 40))
        request = add_request(w, person, w.owner, amount_between(w, 3, 50), w.rng.choice(THINGS), at)
        goal = Goal(w, name=person.name)
        goal.do("wallet.pay_request", request_id=request)
        return goal

    def solve(self, name: str) -> None:
        # I look for the request from {name} among the open ones.
        opened = apis.wallet.list_received_requests(status="open", page_size=20)
        found = shown([r for r in opened if r["name"] == name])
        # Found. Now I pay it.
        print(apis.wallet.pay_request(request_id=found[0]["id"]))
        # The request is paid.


class SentSince(Scenario, split="train", difficulty=2):
    """Add up what was sent to someone since a day."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others(*CIRCLES))
        for days in (*w.rng.sample(range(2, 14), 6), *w.rng.sample(range(15, 50), 3)):
            transfer(w, w.owner.id, person.id, w.rng.randrange(200, 650, 10), w.rng.choice(THINGS), w.ago(days))
        sent = "FROM wallet_transactions WHERE owner = ? AND person = ? AND direction = 'sent' AND at"
        paid = {row["day"] for row in w.all(f"SELECT substr(at, 1, 10) AS day {sent} > ''", w.owner.id, person.id)}
        day = w.rng.choice([w.day(-ago) for ago in range(15, 50) if w.day(-ago) not in paid])
        goal = Goal(w, name=person.name, day=day)
        total = w.value(f"SELECT coalesce(sum(amount_cents), 0) {sent} >= ?", w.owner.id, person.id, day)
        goal.answer = total / 100
        return goal

    def solve(self, name: str, day: str) -> None:
        # I look up {name} in the contacts to get the email address.
        log_in("contacts", "wallet")
        found = apis.contacts.search(query=name)
        email = shown(found[0]["email"])
        # I collect the payments to this address from all pages.
        listed = every(apis.wallet.list_transactions(email=email, direction="sent", since=day))
        amounts = shown([t["amount"] for t in listed])
        # I answer with the sum.
        apis.owner.complete_task(answer=round(sum(amounts), 2))


class SplitWithFlatmates(Scenario, split="train", difficulty=2):
    """Request the flatmates' shares of what the owner paid."""

    def prepare(self, w: World) -> Goal:
        flatmates = w.others("flatmates")
        share = w.rng.randrange(400, 3000, 5)
        note = w.rng.choice(THINGS)
        goal = Goal(w, total=f"{share * (len(flatmates) + 1) / 100:.2f}", note=note)
        for person in flatmates:
            goal.do("wallet.request", email=person.email, amount=share / 100, note=note)
        return goal

    def solve(self, total: float, note: str) -> None:
        # I look up the flatmates in the contacts.
        log_in("contacts", "wallet")
        found = apis.contacts.search(query="flatmate", page_size=20)
        print([c["email"] for c in found])
        # I divide by the number of flatmates plus one, for the owner's share.
        share = shown(round(total / (len(found) + 1), 2))
        # I request this amount from each of them.
        for c in found:
            print(apis.wallet.request(email=c["email"], amount=share, note=note))
        # All requests are sent.


class PayWhatTheMailSays(Scenario, split="train", difficulty=3):
    """Pay the people whom a mail lists, and tell its writer."""

    def prepare(self, w: World) -> Goal:
        writer, *others = w.rng.sample(w.others(*CIRCLES), w.rng.randrange(3, 5))
        trip = w.rng.choice(("Lake Weekend", "Ski Days", "Paris Trip", "Cabin Week", "Bike Tour"))
        text = w.rng.choice(("All paid", "I have paid everyone", "Debts settled", "The money is on its way"))
        owed = {person: amount_between(w, 4, 18) for person in others}
        body = "\n".join(["You owe:", *(f"- {person.name}: {amount}" for person, amount in owed.items()), "Thanks!"])
        mail_from(w, writer, f"Costs of {trip}", body, w.ago(w.rng.randrange(1, 9)))
        goal = Goal(w, name=writer.name, trip=trip, text=text)
        for person, amount in owed.items():
            goal.do("wallet.send", email=person.email, amount=float(amount), note=trip)
        goal.do("phone.send_message", number=writer.phone, text=text)
        return goal

    def solve(self, name: str, trip: str, text: str) -> None:
        # I search for the email.
        log_in("mail", "contacts", "wallet", "phone")
        found = shown(apis.mail.search(query=trip, sender=name))
        # Found. Now I read it.
        body = shown(apis.mail.show(message_id=found[0]["id"])["body"])
        # The debts are the lines with a dash. I split them into name and amount.
        debts = shown([line[2:].split(": ") for line in body.split("\n") if line.startswith("- ")])
        # I look up each email address and send the money.
        for who, amount in debts:
            email = apis.contacts.search(query=who)[0]["email"]
            print(apis.wallet.send(email=email, amount=float(amount), note=trip))
        # Now I text {name}.
        number = apis.contacts.search(query=name)[0]["phone"]
        print(apis.phone.send_message(number=number, text=text))
        # Everyone is paid and the text is sent.


class RemindDebtors(Scenario, split="dev", difficulty=2):
    """Send reminders for the requests that have been open for long."""

    def prepare(self, w: World) -> Goal:
        for days in (*w.rng.sample(range(1, 20), 2), *w.rng.sample(range(25, 60), 3)):
            person, note = w.rng.choice(w.others(*CIRCLES)), w.rng.choice(THINGS)
            add_request(w, w.owner, person, amount_between(w, 5, 60), note, w.ago(days, hours=1))
        mine = "FROM wallet_requests WHERE owner = ? AND status = 'open' AND"
        taken = {row["day"] for row in w.all(f"SELECT substr(at, 1, 10) AS day {mine} 1", w.owner.id)}
        day = next(w.day(-ago) for ago in range(22, 99) if w.day(-ago) not in taken)
        goal = Goal(w, day=day)
        for row in w.all(f"SELECT id {mine} at < ?", w.owner.id, day):
            goal.do("wallet.remind", request_id=row["id"])
        return goal

    def solve(self, day: str) -> None:
        # I collect the open requests from all pages.
        found = every(apis.wallet.list_sent_requests(status="open"))
        print([(r["id"], r["at"]) for r in found])
        # I keep those from before {day}.
        old = [r for r in found if r["at"] < day]
        print(len(old))
        # I send a reminder for each of them.
        for r in old:
            print(apis.wallet.remind(request_id=r["id"]))
        # All reminders are sent.


class WithdrawMyRequest(Scenario, split="validation", difficulty=1):
    """Take back a request that was sent by mistake."""

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others(*CIRCLES))
        note, other = w.rng.sample(THINGS, 2)
        ids = [
            add_request(w, w.owner, person, amount_between(w, 5, 60), about, w.ago(w.rng.randrange(1, 30)))
            for about in w.rng.sample((note, other), 2)
        ]
        goal = Goal(w, name=person.name, note=note)
        wrong = next(id for id in ids if w.value("SELECT note FROM wallet_requests WHERE id = ?", id) == note)
        goal.do("wallet.withdraw_request", request_id=wrong)
        return goal

    def solve(self, name: str, note: str) -> None:
        # I look for the request to {name} among the open ones.
        opened = apis.wallet.list_sent_requests(status="open", page_size=20)
        found = shown([r for r in opened if r["name"] == name and r["note"] == note])
        # Found. Now I withdraw it.
        print(apis.wallet.withdraw_request(request_id=found[0]["id"]))
        # The request is withdrawn.


class PaySmallDeclineLarge(Scenario, split="validation", difficulty=3):
    """Answer all open requests by their amount, and say what was paid."""

    def prepare(self, w: World) -> Goal:
        card = w.value("SELECT id FROM cards WHERE person = ? AND label = 'debit'", w.owner.id)
        act(w, "wallet.add_money", {"card_id": card, "amount": 300.0})
        for low, high in ((4, 14), (4, 14), (4, 14), (31, 60), (31, 60)):
            person, at = w.rng.choice(w.others(*CIRCLES)), w.ago(w.rng.randrange(1, 50), hours=1)
            add_request(w, person, w.owner, amount_between(w, low, high), w.rng.choice(THINGS), at)
        opened = w.all("SELECT * FROM wallet_requests WHERE payer = ? AND status = 'open'", w.owner.id)
        limit = w.rng.choice([n for n in range(15, 31) if all(row["amount_cents"] != 100 * n for row in opened)])
        goal = Goal(w, limit=limit)
        small = [row for row in opened if row["amount_cents"] < 100 * limit]
        for row in opened:
            goal.do(f"wallet.{'pay' if row in small else 'decline'}_request", request_id=row["id"])
        goal.answer = sum(row["amount_cents"] for row in small) / 100
        return goal

    def solve(self, limit: int) -> None:
        # I collect the open requests from all pages before I answer any, because answering changes the pages.
        found = every(apis.wallet.list_received_requests(status="open"))
        print([(r["id"], r["amount"]) for r in found])
        # I pay those below {limit}.
        small = [r for r in found if r["amount"] < limit]
        for r in small:
            print(apis.wallet.pay_request(request_id=r["id"]))
        # I decline the others.
        for r in found:
            if r not in small:
                print(apis.wallet.decline_request(request_id=r["id"]))
        # None should be left open.
        print(apis.wallet.list_received_requests(status="open"))
        # I answer with the sum.
        apis.owner.complete_task(answer=round(sum(r["amount"] for r in small), 2))
