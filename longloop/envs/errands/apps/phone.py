"""Phone: text messages and calls."""

from longloop.envs.errands.api import App

app = App("phone", "Phone: text messages and calls.")
