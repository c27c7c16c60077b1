"""Scenarios around the wallet."""

from typing import Any

from errands.apps.wallet import transfer
from errands.judge import Goal, act
from errands.people import CIRCLES, Person
from errands.scenario import Scenario
from errands.scenarios.mail import mail_from
from errands.world import World
from errands.written import every, log_in

THINGS = ("tickets", "pizza", "flowers", "paint", "petrol", "cake", "museum", "firewood", "stamps", "paddles")
"""Notes that no payment of the base world has."""


def amount_between(w: World, low: int, high: int) -> str:
    """An amount of money as an instruction writes it."""
    return f"{w.rng.randrange(100 * low, 100 * high, 10) / 100:.2f}"


def _asked(w: World, asker: Person, payer: Person, amount: str, note: str, at: str) -> int:
    """An open request from before; its id."""
    people = {"owner": asker.id, "payer": payer.id}
    cents = round(float(amount) * 100)
    return w.add("wallet_requests", **people, amount_cents=cents, note=note, status="open", at=at)


class SendMoneyTo(Scenario):
    """Send money to someone."""

    split, difficulty = "train", 1
    apis = ("contacts.search", "wallet.send")
    phrasings = (
        "Send {amount} to {name} with the note '{note}'.",
        "Please pay {name} {amount} from my wallet, with the note '{note}'.",
        "I owe {name} {amount}. Send it from my wallet with the note '{note}'.",
        "Transfer {amount} to {name} and use '{note}' as the note.",
    )

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others(*CIRCLES))
        amount, note = amount_between(w, 3, 50), w.rng.choice(THINGS)
        goal = Goal(w, name=person.name, amount=amount, note=note)
        goal.do("wallet.send", email=person.email, amount=float(amount), note=note)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, amount: float, note: str) -> None:
        # I look up {name} in the contacts to get the email address.
        contacts, wallet = log_in("contacts", "wallet")
        found = apis.contacts.search(query=name, access_token=contacts)
        print(found[0]["email"])
        # Now I send the money to this address.
        print(apis.wallet.send(email=found[0]["email"], amount=amount, note=note, access_token=wallet))
        # The money is sent.
        apis.owner.complete_task()


class PayRequestOf(Scenario):
    """Pay the open request of someone."""

    split, difficulty = "train", 1
    apis = ("wallet.list_received_requests", "wallet.pay_request")
    phrasings = (
        "Pay {name}'s open request in my wallet.",
        "{name} has sent me a money request. Please pay it.",
        "There is an open money request from {name}. Pay it.",
        "Pay the money that {name} requested from me in the wallet.",
    )

    def prepare(self, w: World) -> Goal:
        busy = "SELECT count(*) FROM wallet_requests WHERE owner = ? AND payer = ? AND status = 'open'"
        free = [person for person in w.others(*CIRCLES) if not w.value(busy, person.id, w.owner.id)]
        person = w.rng.choice(free)
        at = w.ago(w.rng.randrange(1, 40))
        request = _asked(w, person, w.owner, amount_between(w, 3, 50), w.rng.choice(THINGS), at)
        goal = Goal(w, name=person.name)
        goal.do("wallet.pay_request", request_id=request)
        return goal

    @staticmethod
    def solve(apis: Any, name: str) -> None:
        # I look for the request from {name} among the open ones.
        wallet = log_in("wallet")
        opened = apis.wallet.list_received_requests(status="open", page_size=20, access_token=wallet)
        found = [r for r in opened if r["name"] == name]
        print(found)
        # Found. Now I pay it.
        print(apis.wallet.pay_request(request_id=found[0]["id"], access_token=wallet))
        # The request is paid.
        apis.owner.complete_task()


class SentSince(Scenario):
    """Add up what was sent to someone since a day."""

    split, difficulty = "train", 2
    apis = ("contacts.search", "wallet.list_transactions")
    phrasings = (
        "How much money have I sent to {name} since {day} in total?",
        "Add up everything I have sent {name} from my wallet since {day}.",
        "What is the total of my payments to {name} since {day}?",
        "I want to know how much I have paid {name} from my wallet since {day}.",
    )

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

    @staticmethod
    def solve(apis: Any, name: str, day: str) -> None:
        # I look up {name} in the contacts to get the email address.
        contacts, wallet = log_in("contacts", "wallet")
        found = apis.contacts.search(query=name, access_token=contacts)
        email = found[0]["email"]
        print(email)
        # I collect the payments to this address from all pages.
        listed = every(apis.wallet.list_transactions(email=email, direction="sent", since=day, access_token=wallet))
        amounts = [t["amount"] for t in listed]
        print(amounts)
        # I answer with the sum.
        apis.owner.complete_task(answer=round(sum(amounts), 2))


class SplitWithFlatmates(Scenario):
    """Request the flatmates' shares of what the owner paid."""

    split, difficulty = "train", 2
    apis = ("contacts.search", "wallet.request")
    phrasings = (
        "I paid {total} for the flat. Split it evenly between me and my flatmates, and request their share from each "
        "of them in the wallet, with the note '{note}'.",
        "I paid {total} for my flatmates and me. Request an equal share from each of them in the wallet (one share is "
        "mine), with the note '{note}'.",
        "My flatmates and I share a bill of {total} equally, and I have paid all of it. Send each flatmate a wallet "
        "request for their share, with the note '{note}'.",
        "Please ask each of my flatmates in the wallet for an equal share of {total}; I pay one share too. The note is "
        "'{note}'.",
    )

    def prepare(self, w: World) -> Goal:
        flatmates = w.others("flatmates")
        share = w.rng.randrange(400, 3000, 5)
        note = w.rng.choice(THINGS)
        goal = Goal(w, total=f"{share * (len(flatmates) + 1) / 100:.2f}", note=note)
        for person in flatmates:
            goal.do("wallet.request", email=person.email, amount=share / 100, note=note)
        return goal

    @staticmethod
    def solve(apis: Any, total: float, note: str) -> None:
        # I look up the flatmates in the contacts.
        contacts, wallet = log_in("contacts", "wallet")
        found = apis.contacts.search(query="flatmate", page_size=20, access_token=contacts)
        print([c["email"] for c in found])
        # I divide by the number of flatmates plus one, for the owner's share.
        share = round(total / (len(found) + 1), 2)
        print(share)
        # I request this amount from each of them.
        for c in found:
            print(apis.wallet.request(email=c["email"], amount=share, note=note, access_token=wallet))
        # All requests are sent.
        apis.owner.complete_task()


class PayWhatTheMailSays(Scenario):
    """Pay the people whom a mail lists, and tell its writer."""

    split, difficulty = "train", 3
    apis = ("mail.search", "mail.show", "contacts.search", "wallet.send", "phone.send_message")
    phrasings = (
        "{name} emailed me what I owe to whom after '{trip}'. Send everyone their money with the note '{trip}', then "
        "text {name} '{text}'.",
        "In an email about '{trip}', {name} listed my debts. Pay all of them from my wallet, each with the note "
        "'{trip}', and then text '{text}' to {name}.",
        "Settle my debts from '{trip}': they are in an email from {name}. Every payment gets the note '{trip}'. When "
        "you are done, text '{text}' to {name}.",
        "The email from {name} says whom I have to pay after '{trip}'. Send each of them the amount with the note "
        "'{trip}', and let {name} know with the text message '{text}'.",
    )

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

    @staticmethod
    def solve(apis: Any, name: str, trip: str, text: str) -> None:
        # I search for the email.
        mail, contacts, wallet, phone = log_in("mail", "contacts", "wallet", "phone")
        found = apis.mail.search(query=trip, sender=name, access_token=mail)
        print(found)
        # Found. Now I read it.
        body = apis.mail.show(message_id=found[0]["id"], access_token=mail)["body"]
        print(body)
        # The debts are the lines with a dash. I split them into name and amount.
        debts = [line[2:].split(": ") for line in body.split("\n") if line.startswith("- ")]
        print(debts)
        # I look up each email address and send the money.
        for who, amount in debts:
            email = apis.contacts.search(query=who, access_token=contacts)[0]["email"]
            print(apis.wallet.send(email=email, amount=float(amount), note=trip, access_token=wallet))
        # Now I text {name}.
        number = apis.contacts.search(query=name, access_token=contacts)[0]["phone"]
        print(apis.phone.send_message(number=number, text=text, access_token=phone))
        # Everyone is paid and the text is sent.
        apis.owner.complete_task()


class RemindDebtors(Scenario):
    """Send reminders for the requests that have been open for long."""

    split, difficulty = "dev", 2
    apis = ("wallet.list_sent_requests", "wallet.remind")
    phrasings = (
        "Send a reminder for every open money request that I sent before {day}.",
        "Some of the money requests I sent before {day} are still open. Send a reminder for each of them.",
        "Please remind people about all my open wallet requests that are older than {day}.",
        "Remind everyone who has not answered a money request I sent before {day}, once per request.",
    )

    def prepare(self, w: World) -> Goal:
        for days in (*w.rng.sample(range(1, 20), 2), *w.rng.sample(range(25, 60), 3)):
            person, note = w.rng.choice(w.others(*CIRCLES)), w.rng.choice(THINGS)
            _asked(w, w.owner, person, amount_between(w, 5, 60), note, w.ago(days, hours=1))
        mine = "FROM wallet_requests WHERE owner = ? AND status = 'open' AND"
        taken = {row["day"] for row in w.all(f"SELECT substr(at, 1, 10) AS day {mine} 1", w.owner.id)}
        day = next(w.day(-ago) for ago in range(22, 99) if w.day(-ago) not in taken)
        goal = Goal(w, day=day)
        for row in w.all(f"SELECT id {mine} at < ?", w.owner.id, day):
            goal.do("wallet.remind", request_id=row["id"])
        return goal

    @staticmethod
    def solve(apis: Any, day: str) -> None:
        # I collect the open requests from all pages.
        wallet = log_in("wallet")
        found = every(apis.wallet.list_sent_requests(status="open", access_token=wallet))
        print([(r["id"], r["at"]) for r in found])
        # I keep those from before {day}.
        old = [r for r in found if r["at"] < day]
        print(len(old))
        # I send a reminder for each of them.
        for r in old:
            print(apis.wallet.remind(request_id=r["id"], access_token=wallet))
        # All reminders are sent.
        apis.owner.complete_task()


class WithdrawMyRequest(Scenario):
    """Take back a request that was sent by mistake."""

    split, difficulty = "validation", 1
    apis = ("wallet.list_sent_requests", "wallet.withdraw_request")
    phrasings = (
        "I asked {name} for money for '{note}' by mistake. Withdraw that request.",
        "Withdraw the request for '{note}' that I sent to {name} in the wallet.",
        "{name} does not have to pay me for '{note}' after all. Please withdraw my request.",
        "My wallet request to {name} with the note '{note}' was a mistake; please withdraw it.",
    )

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others(*CIRCLES))
        note, other = w.rng.sample(THINGS, 2)
        ids = [
            _asked(w, w.owner, person, amount_between(w, 5, 60), about, w.ago(w.rng.randrange(1, 30)))
            for about in w.rng.sample((note, other), 2)
        ]
        goal = Goal(w, name=person.name, note=note)
        wrong = next(id for id in ids if w.value("SELECT note FROM wallet_requests WHERE id = ?", id) == note)
        goal.do("wallet.withdraw_request", request_id=wrong)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, note: str) -> None:
        # I look for the request to {name} among the open ones.
        wallet = log_in("wallet")
        opened = apis.wallet.list_sent_requests(status="open", page_size=20, access_token=wallet)
        found = [r for r in opened if r["name"] == name and r["note"] == note]
        print(found)
        # Found. Now I withdraw it.
        print(apis.wallet.withdraw_request(request_id=found[0]["id"], access_token=wallet))
        # The request is withdrawn.
        apis.owner.complete_task()


class PaySmallDeclineLarge(Scenario):
    """Answer all open requests by their amount, and say what was paid."""

    split, difficulty = "validation", 3
    apis = ("wallet.list_received_requests", "wallet.pay_request", "wallet.decline_request")
    phrasings = (
        "Go through the open requests in my wallet: pay those of less than {limit} and decline all others. How much "
        "did you pay in total?",
        "Pay every open money request below {limit}, decline the rest, and tell me the total you paid.",
        "Clear the open requests in my wallet: pay the ones under {limit} and decline the ones over {limit}. Answer "
        "with the total of the payments.",
        "I don't want to have any open money requests. Decline those above {limit}, pay those below, and tell me how "
        "much you paid in total.",
    )

    def prepare(self, w: World) -> Goal:
        card = w.value("SELECT id FROM cards WHERE person = ? AND label = 'debit'", w.owner.id)
        act(w, "wallet.add_money", {"card_id": card, "amount": 300.0})
        for low, high in ((4, 14), (4, 14), (4, 14), (31, 60), (31, 60)):
            person, at = w.rng.choice(w.others(*CIRCLES)), w.ago(w.rng.randrange(1, 50), hours=1)
            _asked(w, person, w.owner, amount_between(w, low, high), w.rng.choice(THINGS), at)
        opened = w.all("SELECT * FROM wallet_requests WHERE payer = ? AND status = 'open'", w.owner.id)
        limit = w.rng.choice([n for n in range(15, 31) if all(row["amount_cents"] != 100 * n for row in opened)])
        goal = Goal(w, limit=limit)
        small = [row for row in opened if row["amount_cents"] < 100 * limit]
        for row in opened:
            goal.do(f"wallet.{'pay' if row in small else 'decline'}_request", request_id=row["id"])
        goal.answer = sum(row["amount_cents"] for row in small) / 100
        return goal

    @staticmethod
    def solve(apis: Any, limit: int) -> None:
        # I collect the open requests from all pages before I answer any, because answering changes the pages.
        wallet = log_in("wallet")
        found = every(apis.wallet.list_received_requests(status="open", access_token=wallet))
        print([(r["id"], r["amount"]) for r in found])
        # I pay those below {limit}.
        small = [r for r in found if r["amount"] < limit]
        for r in small:
            print(apis.wallet.pay_request(request_id=r["id"], access_token=wallet))
        # I decline the others.
        for r in found:
            if r not in small:
                print(apis.wallet.decline_request(request_id=r["id"], access_token=wallet))
        # None should be left open.
        print(apis.wallet.list_received_requests(status="open", access_token=wallet))
        # I answer with the sum.
        apis.owner.complete_task(answer=round(sum(r["amount"] for r in small), 2))
