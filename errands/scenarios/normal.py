"""The split test_normal: other errands with the apps of train.

Frozen: nobody reads attempts at them, and no practice is written for them.
"""

from errands.scenario import Scenario

SCENARIOS: list[type[Scenario]] = []
