"""A guessing game with LangGraph: a model and its tool in turns, until the model has nothing more to call."""

import json
import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

task = json.loads(os.environ["LONGLOOP_TASK"])


@tool
def guess(number: int) -> str:
    """Guess the number."""
    return "right" if number == task["number"] else "higher" if number < task["number"] else "lower"


model = ChatOpenAI(model="gpt-4o").bind_tools([guess])
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode([guess]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
graph.compile().invoke({"messages": [("user", f"guess 1-{task['highest']}")]})
