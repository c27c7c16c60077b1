"""Shop: catalogue, cart, orders and returns."""

from longloop.envs.errands.api import App

app = App("shop", "Shop: catalogue, cart, orders and returns.")
