from typing import Any


def get_env(
    env_name: str, user_strategy: str, user_model: str, task_split: str, user_provider: str | None = None
) -> Any:
    assert env_name == "retail"
    from tau_bench.envs.retail import Shop

    return Shop(user_strategy, user_model, task_split, user_provider)
