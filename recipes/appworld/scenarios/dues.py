"""Ask everyone who still owes something for their share: a note says who, Venmo asks them."""

import json

SPLIT, DIFFICULTY, APPS = "train", 2, ("simple_note", "venmo")
INSTRUCTION = (
    "My note '{title}' says who owes me how much. Request it from each of them on Venmo, with the description "
    "'{title}'. Leave out those who are marked as paid."
)
TASKS = [
    {
        "title": "Cabin weekend",
        "shares": [["Mira Cole", 42.5, False], ["Jonas Falk", 42.5, True], ["Ruth Amsel", 30, False]],
    },
    {
        "title": "Concert tickets",
        "shares": [["Jonas Falk", 61, False], ["Leo Sanz", 61, False], ["Mira Cole", 55.25, True]],
    },
    {
        "title": "Birthday present",
        "shares": [["Ruth Amsel", 12.4, True], ["Leo Sanz", 12.4, False], ["Mira Cole", 8, False]],
    },
]
TESTS = {
    "The task was completed, without an answer.": False,
    "Those who owe something, and only they, were asked.": False,
    "Each was asked for what the note says.": False,
    "Each request has the note's title as its description.": False,
    "Nothing else was changed.": True,
}


def answer(task):
    return None


def prepare(apis, owner, friends, task):
    lines = [f"{name}: {amount:.2f}{' (paid)' if paid else ''}" for name, amount, paid in task["shares"]]
    token = owner.tokens["simple_note"]
    apis.simple_note.create_note(title=task["title"], content="\n".join(lines), access_token=token)
    apis.simple_note.create_note(title="Packing", content="tent\nlamp\nmaps", access_token=token)


def turns(task):
    return [
        (
            "I read the note.",
            f"found = apis.simple_note.search_notes(query={task['title']!r}, access_token=simple_note)\n"
            f"note = next(n for n in found if n['title'] == {task['title']!r})\n"
            "text = apis.simple_note.show_note(note_id=note['note_id'], access_token=simple_note)['content']\n"
            "print(text)",
        ),
        (
            "I leave out the lines marked as paid and look the others up on Venmo.",
            "owed = {}\n"
            "for line in text.splitlines():\n"
            "    name, amount = line.split(': ')\n"
            "    if '(paid)' not in amount:\n"
            "        user = apis.venmo.search_users(query=name, access_token=venmo)[0]\n"
            "        owed[user['email']] = float(amount)\n"
            "print(owed)",
        ),
        (
            "I send the requests.",
            "for email, amount in owed.items():\n"
            "    print(apis.venmo.create_payment_request(user_email=email, amount=amount, "
            f"description={task['title']!r}, access_token=venmo))",
        ),
    ]


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    completed, asked, amounts, descriptions, rest = list(TESTS)
    owed = {name: amount for name, amount, paid in private_data.shares if not paid}
    with test(completed):
        test.answer(json.loads(models.end.supervisor.Task.first().answer), ground_truth_answer)
    added, updated, removed = models.changed_records("venmo.PaymentRequest")
    users = {user.id: user for user in models.end.venmo.User.all()}
    requests = [(f"{users[r.receiver_id].first_name} {users[r.receiver_id].last_name}", r) for r in added]
    with test(asked):
        assert sorted(name for name, _ in requests) == sorted(owed)
    with test(amounts):
        assert {name: request.amount for name, request in requests} == owed
    with test(descriptions):
        assert added and all(request.description == private_data.title for request in added)
    with test(rest):
        assert models.changed_model_names() <= {"venmo.PaymentRequest", "venmo.Notification"}
        assert not updated and not removed
        assert all(users[request.sender_id].email == main_user.email for request in added)
