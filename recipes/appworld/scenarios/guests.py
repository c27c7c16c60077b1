"""How many guests said yes? Read one note, answer a question, change nothing."""

import json

SPLIT, DIFFICULTY, APPS = "train", 1, ("simple_note",)
INSTRUCTION = "My note '{title}' is a list of the guests and what they answered. How many of them said {said}?"
TASKS = [
    {"title": "Garden party", "said": "yes", "answers": ["yes", "no", "yes", "maybe", "yes"]},
    {"title": "Board game night", "said": "maybe", "answers": ["maybe", "yes", "yes", "maybe"]},
    {"title": "Farewell dinner", "said": "no", "answers": ["no", "no", "yes", "no", "maybe", "no"]},
]
ANSWER = "The answer is the number of guests who said so."
TESTS = {ANSWER: False, "Nothing was changed in any app.": True}
"""Each requirement, and whether it is met by doing nothing."""
NAMES = ("Ada", "Ben", "Cleo", "Dov", "Edda", "Finn")


def answer(task):
    return task["answers"].count(task["said"])


def prepare(apis, owner, friends, task):
    """The note, and one with almost the same title and other answers."""
    for title, answers in (
        (task["title"], task["answers"]),
        (f"{task['title']}, last year", ["yes", "no", "maybe"] * 2),
    ):
        lines = "\n".join(f"{name}: {said}" for name, said in zip(NAMES, answers, strict=False))
        apis.simple_note.create_note(title=title, content=lines, access_token=owner.tokens["simple_note"])


def turns(task):
    return [
        (
            "I find the note by its title.",
            f"found = apis.simple_note.search_notes(query={task['title']!r}, access_token=simple_note)\nprint(found)",
        ),
        (
            "I read the note with exactly this title.",
            f"note = next(n for n in found if n['title'] == {task['title']!r})\n"
            "text = apis.simple_note.show_note(note_id=note['note_id'], access_token=simple_note)['content']\n"
            "print(text)",
        ),
        (
            "I count the lines that end with what was asked for.",
            f"answer = sum(line.endswith(': ' + {task['said']!r}) for line in text.splitlines())\nprint(answer)",
        ),
    ]


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    answer, changes = list(TESTS)
    with test(answer):
        test.answer(json.loads(models.end.supervisor.Task.first().answer), ground_truth_answer)
    with test(changes):
        assert not models.changed_model_names()
