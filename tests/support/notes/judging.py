"""The judge of tasks about notes: the folder must hold what the task wants, and the answer be one of its answers."""

from longloop import Attempt


def score(attempt: Attempt) -> float:
    held = {path.name: path.read_text() for path in attempt.folder.iterdir()}
    answers = attempt.task.data.get("answers")
    said = attempt.conversations[0][-1].content
    wanted = attempt.task.data["notes"]
    return float(held == wanted and attempt.finished and (answers is None or said in answers))
