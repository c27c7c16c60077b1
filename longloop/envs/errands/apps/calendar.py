"""Calendar: events, guests and reminders."""

from longloop.envs.errands.api import App

app = App("calendar", "Calendar: events, guests and reminders.")
