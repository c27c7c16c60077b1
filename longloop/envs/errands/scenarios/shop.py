"""Scenarios around shop."""

from longloop.envs.errands.scenario import Scenario

SCENARIOS: list[type[Scenario]] = []
