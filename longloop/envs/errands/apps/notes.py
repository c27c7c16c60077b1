"""Notes with tags."""

from longloop.envs.errands.api import App

app = App("notes", "Notes with tags.")
