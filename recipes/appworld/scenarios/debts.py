"""Pay what a friend's text message asks for."""

import json

SPLIT, DIFFICULTY, APPS = "dev", 2, ("phone", "venmo")
INSTRUCTION = (
    "{friend} texted me what I owe for the {thing}. Send the money on Venmo with the description '{thing}', and text "
    "back '{reply}'."
)
TASKS = [
    {"friend": "Leo Sanz", "thing": "museum", "amount": 18.4, "reply": "Paid, thank you!"},
    {"friend": "Ruth Amsel", "thing": "taxi", "amount": 11.0, "reply": "Done."},
    {"friend": "Mira Cole", "thing": "groceries", "amount": 37.15, "reply": "Just sent it."},
]
TESTS = {
    "The task was completed, without an answer.": False,
    "One payment was made, to the friend.": False,
    "It has the amount of the message and the description asked for.": False,
    "The friend got the reply.": False,
    "Nothing else was changed.": True,
}


def answer(task):
    return None


def prepare(apis, owner, friends, task):
    """Every friend is in the contacts and wrote something; one of them wrote about the debt."""
    for name, friend in friends.items():
        apis.phone.add_contact(
            first_name=friend.first,
            last_name=friend.last,
            phone_number=friend.phone,
            email=friend.email,
            relationships=["friend"],
            access_token=owner.tokens["phone"],
        )
        text = f"It was {task['amount']:.2f} for you for the {task['thing']}." if name == task["friend"] else "See you!"
        apis.phone.send_text_message(phone_number=owner.phone, message=text, access_token=friend.tokens["phone"])


def turns(task):
    return [
        (
            "I look the friend up in the contacts.",
            f"friend = apis.phone.search_contacts(query={task['friend']!r}, access_token=phone)[0]\nprint(friend)",
        ),
        (
            "I read what the friend wrote.",
            "messages = apis.phone.search_text_messages(phone_number=friend['phone_number'], access_token=phone)\n"
            "print(messages)",
        ),
        (
            "I take the amount from the message and pay it.",
            f"text = next(m['message'] for m in messages if {task['thing']!r} in m['message'])\n"
            "amount = float(re.search(r'\\d+\\.\\d+', text).group())\n"
            "print(apis.venmo.create_transaction(receiver_email=friend['email'], amount=amount, "
            f"description={task['thing']!r}, access_token=venmo))",
        ),
        (
            "I text back.",
            "print(apis.phone.send_text_message(phone_number=friend['phone_number'], "
            f"message={task['reply']!r}, access_token=phone))",
        ),
    ]


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    completed, payment, amount, reply, rest = list(TESTS)
    with test(completed):
        test.answer(json.loads(models.end.supervisor.Task.first().answer), ground_truth_answer)
    paid, updated, removed = models.changed_records("venmo.Transaction")
    users = {user.id: user for user in models.end.venmo.User.all()}
    with test(payment):
        receivers = [users[transaction.receiver_id] for transaction in paid]
        assert [f"{user.first_name} {user.last_name}" for user in receivers] == [private_data.friend]
    with test(amount):
        asked = [(private_data.amount, private_data.thing)]
        assert [(transaction.amount, transaction.description) for transaction in paid] == asked
    sent, changed, deleted = models.changed_records("phone.GlobalTextMessage")
    phones = {user.id: f"{user.first_name} {user.last_name}" for user in models.end.phone.User.all()}
    with test(reply):
        texts = [(phones[message.receiver_id], message.message) for message in sent]
        assert texts == [(private_data.friend, private_data.reply)]
    with test(rest):
        allowed = {"venmo.Transaction", "venmo.User", "venmo.Notification"}
        assert models.changed_model_names() <= {*allowed, "phone.GlobalTextMessage", "phone.UserTextMessage"}
        assert not updated and not removed and not changed and not deleted
