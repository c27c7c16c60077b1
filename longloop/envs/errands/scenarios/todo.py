"""Scenarios around todo."""

from longloop.envs.errands.scenario import Scenario

SCENARIOS: list[type[Scenario]] = []
