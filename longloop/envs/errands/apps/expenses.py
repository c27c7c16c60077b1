"""Shared expenses: groups, who paid, who owes whom."""

from longloop.envs.errands.api import App

app = App("expenses", "Shared expenses: groups, who paid, who owes whom.")
