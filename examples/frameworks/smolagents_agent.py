"""A guessing game with smolagents: an agent that calls tools."""

import json
import os

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

task = json.loads(os.environ["LONGLOOP_TASK"])


@tool
def guess(number: int) -> str:
    """Guess the number.

    Args:
        number: The guess.
    """
    return "right" if number == task["number"] else "higher" if number < task["number"] else "lower"


agent = ToolCallingAgent(tools=[guess], model=OpenAIServerModel("gpt-4o"))
agent.run(f"guess 1-{task['highest']}")
