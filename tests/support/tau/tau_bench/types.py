from typing import Any

from pydantic import BaseModel


class Action(BaseModel):
    name: str
    kwargs: dict[str, Any]


class Task(BaseModel):
    instruction: str
    actions: list[Action]
    outputs: list[str]


class Reply(BaseModel):
    observation: str
    reward: float = 0.0
    done: bool = False
