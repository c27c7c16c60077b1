"""A guessing game with OpenAI's Agents SDK, which speaks the Responses API."""

import json
import os

from agents import Agent, Runner, function_tool, set_tracing_disabled

task = json.loads(os.environ["LONGLOOP_TASK"])
set_tracing_disabled(True)  # traces would go to OpenAI


@function_tool
def guess(number: int) -> str:
    """Guess the number."""
    return "right" if number == task["number"] else "higher" if number < task["number"] else "lower"


agent = Agent(name="guesser", model="gpt-4o", tools=[guess])
Runner.run_sync(agent, f"guess 1-{task['highest']}")
