"""Scenarios around the address book."""

from longloop.envs.errands.judge import Goal
from longloop.envs.errands.scenario import Scenario, Turns, log_in
from longloop.envs.errands.world import World


class PhoneNumberOfSomeone(Scenario):
    """Look up a phone number."""

    split, difficulty = "train", 1
    apis = ("contacts.search",)
    phrasings = (
        "What is the phone number of {name}?",
        "I need {name}'s phone number.",
        "Look up the number under which I can call {name}.",
    )

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others("friends", "colleagues"))
        goal = Goal(w, name=person.name)
        goal.answer = person.phone
        return goal

    def solve(self, name: str) -> Turns:
        yield (
            f"I look for {name} in the contacts.",
            "\n".join([log_in("contacts"), f'print(apis.contacts.search(query="{name}", access_token=contacts))']),
        )
        yield (
            "I answer with the number.",
            f'found = apis.contacts.search(query="{name}", access_token=contacts)\n'
            'apis.owner.complete_task(answer=found[0]["phone"])',
        )


class NewAddress(Scenario):
    """Change a contact's address."""

    split, difficulty = "train", 1
    apis = ("contacts.search", "contacts.update")
    phrasings = (
        "{name} has moved to {street}. Put that into my contacts.",
        "Please update my address book: {name} now lives at {street}.",
        "Change the address of {name} to {street} in my contacts.",
    )

    def prepare(self, w: World) -> Goal:
        person = w.rng.choice(w.others("friends", "colleagues", "family"))
        street = f"{w.rng.randrange(100, 400)} {w.rng.choice(['Elm Street', 'Harbour Road', 'Castle Hill'])}"
        goal = Goal(w, name=person.name, street=street)
        card = w.value("SELECT id FROM contacts WHERE owner = ? AND email = ?", w.owner.id, person.email)
        goal.do("contacts.update", contact_id=card, address=street)
        return goal

    def solve(self, name: str, street: str) -> Turns:
        yield (
            f"I look for {name} in the contacts.",
            "\n".join(
                [
                    log_in("contacts"),
                    f'found = apis.contacts.search(query="{name}", access_token=contacts)',
                    "print(found)",
                ]
            ),
        )
        yield (
            "There is one; I change its address.",
            f'print(apis.contacts.update(contact_id=found[0]["id"], address="{street}", access_token=contacts))',
        )
        yield "The address is changed.", "apis.owner.complete_task()"


SCENARIOS = [PhoneNumberOfSomeone, NewAddress]
