"""A guessing game as an environment of verifiers: find a number from "higher" and "lower", in two tries."""

import re

import verifiers as vf
from datasets import Dataset


class Guessing(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        found = re.search(r"\d+", messages[-1].content)
        if found is None:
            return [{"role": "user", "content": "number?"}]
        guess, number = int(found[0]), int(state["answer"])
        if guess == number:
            state["final_env_response"] = [{"role": "user", "content": "right"}]
        return [{"role": "user", "content": "higher" if guess < number else "lower"}]


def found(completion, answer) -> float:
    said = [re.search(r"\d+", message.content) for message in completion if message.role == "assistant"]
    return float(any(guess and guess[0] == answer for guess in said))


def load_environment(highest: int = 3) -> vf.Environment:
    games = Dataset.from_list([{"question": f"guess 1-{highest}", "answer": str(n)} for n in range(1, highest + 1)])
    return Guessing(dataset=games, eval_dataset=games, rubric=vf.Rubric(funcs=[found]), max_turns=2)
