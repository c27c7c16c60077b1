import enum
from typing import Any

from litellm import completion


class UserStrategy(enum.Enum):
    HUMAN = "human"
    LLM = "llm"


class Human:
    def reset(self, instruction: str | None = None) -> str:
        raise EOFError("nobody is there")


class Customer:
    def __init__(self, model: str, provider: str) -> None:
        self.model, self.provider, self.total_cost = model, provider, 0.0
        self.reset()

    def reset(self, instruction: str | None = None) -> str:
        self.messages: list[Any] = [{"role": "system", "content": f"You want: {instruction}"}]
        return self.step("Hello?")

    def step(self, content: str) -> str:
        self.messages.append({"role": "user", "content": content})
        found = completion(model=self.model, custom_llm_provider=self.provider, messages=self.messages)
        message = found.choices[0].message
        self.messages.append(message.model_dump())
        self.total_cost += found._hidden_params["response_cost"]
        return message.content


def load_user(user_strategy: str | UserStrategy, model: str | None = None, provider: str | None = None) -> Any:
    if UserStrategy(user_strategy) is UserStrategy.HUMAN:
        return Human()
    assert model and provider
    return Customer(model, provider)
