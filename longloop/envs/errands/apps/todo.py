"""To-do lists and their items."""

from longloop.envs.errands.api import App

app = App("todo", "To-do lists and their items.")
