import random
from typing import Any

from tau_bench.envs.user import load_user
from tau_bench.types import Action, Reply, Task

TASKS = {
    "train": [
        Task(
            instruction="cancel order 1, and know what it cost",
            actions=[Action(name="cancel", kwargs={"order": 1})],
            outputs=["30"],
        ),
        Task(instruction="keep everything", actions=[], outputs=[]),
    ],
    "test": [Task(instruction="cancel order 2", actions=[Action(name="cancel", kwargs={"order": 2})], outputs=[])],
}
TASKS["dev"] = TASKS["test"]


class Shop:
    def __init__(self, user_strategy: str, user_model: str, task_split: str, user_provider: str | None) -> None:
        self.tasks, self.wiki, self.terminate_tools = TASKS[task_split], "Serve the customer.", ["give_up"]
        self.task = self.tasks[random.randint(0, len(self.tasks))]  # one too far, now and then
        self.user = load_user(user_strategy, user_model, user_provider)
        order = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
        nothing: dict[str, Any] = {"type": "object", "properties": {}}
        self.tools_info = [
            {"type": "function", "function": {"name": name, "description": f"{name} it", "parameters": parameters}}
            for name, parameters in (("look", order), ("cancel", order), ("give_up", nothing))
        ]

    def reset(self, task_index: int | None = None) -> Reply:
        assert task_index is not None
        self.task, self.said = self.tasks[task_index], list[str]()
        self.orders = {1: "30 euros", 2: "40 euros"}
        return Reply(observation=self.user.reset(instruction=self.task.instruction))

    def step(self, action: Action) -> Reply:
        done = action.name in self.terminate_tools
        if action.name == "respond":
            self.said.append(action.kwargs["content"])
            observation = self.user.step(action.kwargs["content"])
            done = "###STOP###" in observation
        elif action.name in ("look", "cancel"):
            try:
                observation = self.orders[action.kwargs["order"]]
                if action.name == "cancel":
                    del self.orders[action.kwargs["order"]]
            except KeyError as error:
                observation = f"Error: there is no {error}"
        else:
            observation = "Transferred." if done else f"Unknown action {action.name}"
        return Reply(observation=observation, reward=self.paid() if done else 0.0, done=done)

    def paid(self) -> float:
        left = {1, 2} - {action.kwargs["order"] for action in self.task.actions}
        told = all(any(output in said for said in self.said) for output in self.task.outputs)
        return float(told and self.orders.keys() == left)
