"""Files in folders."""

from longloop.envs.errands.api import App

app = App("files", "Files in folders.")
