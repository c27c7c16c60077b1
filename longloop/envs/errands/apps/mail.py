"""E-mail: inbox, sent mail, drafts, labels."""

from longloop.envs.errands.api import App

app = App("mail", "E-mail: inbox, sent mail, drafts, labels.")
