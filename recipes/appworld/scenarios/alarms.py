"""Move one alarm and leave the others alone."""

import json

SPLIT, DIFFICULTY, APPS = "train", 1, ("phone",)
INSTRUCTION = "Set my alarm '{label}' to {to} and leave it as it is otherwise."
TASKS = [
    {"label": "Swimming", "to": "06:45"},
    {"label": "Medicine", "to": "20:15"},
    {"label": "Call home", "to": "18:00"},
]
ALARMS = {"Swimming": "06:30", "Medicine": "21:00", "Call home": "19:30", "Work": "07:15"}
TESTS = {
    "The task was completed, without an answer.": False,
    "Of all alarms, this one was changed.": False,
    "The alarm rings at the new time.": False,
    "It is otherwise as it was, and so is everything else.": True,
}


def answer(task):
    return None


def prepare(apis, owner, friends, task):
    for label, time in ALARMS.items():
        apis.phone.create_alarm(time=time, label=label, snooze_minutes=5, access_token=owner.tokens["phone"])


def turns(task):
    return [
        (
            "I look for the alarm among all of them.",
            "alarms = apis.phone.show_alarms(page_limit=20, access_token=phone)\n"
            f"alarm = next(a for a in alarms if a['label'] == {task['label']!r})\nprint(alarm)",
        ),
        (
            "I set its time and nothing else.",
            f"print(apis.phone.update_alarm(alarm_id=alarm['alarm_id'], time={task['to']!r}, access_token=phone))",
        ),
    ]


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    completed, changed, time, rest = list(TESTS)
    with test(completed):
        test.answer(json.loads(models.end.supervisor.Task.first().answer), ground_truth_answer)
    added, updated, removed = models.changed_records("phone.Alarm")
    with test(changed):
        assert [alarm.label for alarm in updated] == [private_data.label]
    with test(time):
        alarm = next(alarm for alarm in models.end.phone.Alarm.all() if alarm.label == private_data.label)
        assert alarm.time == private_data.to
    with test(rest):
        assert models.changed_model_names() <= {"phone.Alarm"}
        assert not added and not removed
        assert all(models.changed_field_names("phone.Alarm", alarm.id) <= {"time"} for alarm in updated)
