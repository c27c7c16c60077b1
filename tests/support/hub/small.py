"""Environments made with the real verifiers, as packages of its hub have them: small ones, some of them odd."""

import verifiers as vf
from datasets import Dataset

TEN = [{"question": f"guess 1-9, number {n}", "answer": str(n % 9 + 1)} for n in range(20)]


class Guessing(vf.MultiTurnEnv):
    """Higher or lower, until the number was said; three tries."""

    def __init__(self, **kwargs):
        super().__init__(max_turns=3, **kwargs)

    async def setup_state(self, state):
        state["tries"] = []
        return state

    async def env_response(self, messages, state, **kwargs):
        said = messages[-1].content.strip()
        state["tries"].append(said)
        if said == "break":
            raise vf.Error("the table fell over")
        if said == "bug":
            raise KeyError("nobody expected this")
        if said == state["answer"]:
            state["final_env_response"] = [{"role": "user", "content": "right"}]
            return state["final_env_response"]
        return [{"role": "user", "content": "higher" if said < state["answer"] else "lower"}]


class Forgetful(Guessing):
    """Shows the model its last word alone, in place of the history."""

    async def get_prompt_messages(self, state):
        messages = await super().get_prompt_messages(state)
        return [messages[0], *messages[-1:]] if len(messages) > 4 else messages


def right(completion, answer):
    """0.5 for each try saved, at most 1."""
    said = [message.content.strip() for message in completion if message.role == "assistant"]
    return (1.0 if len(said) < 3 else 0.5) if answer in said else 0.0


async def tries(state):
    return float(len(state["tries"]))


def broken(completion):
    raise ZeroDivisionError("a judge that fails")


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def exact(completion, answer):
    return float(completion[-1].content.strip() == answer)


def load_environment(kind: str = "all"):
    """One of them, or all in a group."""
    given = {"dataset": Dataset.from_list(TEN), "system_prompt": "Say a number."}
    sums = Dataset.from_list([{"question": f"What is {n} + 5?", "answer": str(n + 5)} for n in range(20)])
    rubric = vf.Rubric(funcs=[right, tries], weights=[1.0, 0.0])
    kinds = {
        "guess": lambda: Guessing(rubric=rubric, **given),
        "forgetful": lambda: Forgetful(rubric=rubric, **given),
        "tools": lambda: vf.ToolEnv(tools=[add], dataset=sums, rubric=vf.Rubric(funcs=[exact])),
        "single": lambda: vf.SingleTurnEnv(rubric=vf.Rubric(funcs=[exact]), **given),
        "broken judge": lambda: Guessing(rubric=vf.Rubric(funcs=[broken]), **given),
    }
    return kinds[kind]() if kind != "all" else vf.EnvGroup([make() for make in kinds.values()], list(kinds))
