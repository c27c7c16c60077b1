"""Wallet: balance, payments and payment requests."""

from longloop.envs.errands.api import App

app = App("wallet", "Wallet: balance, payments and payment requests.")
