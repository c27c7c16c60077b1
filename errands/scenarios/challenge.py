"""The split test_challenge: errands that need an app which no other split uses.

Frozen: nobody reads attempts at them, and no practice is written for them.
"""

from errands.scenario import Scenario

SCENARIOS: list[type[Scenario]] = []
