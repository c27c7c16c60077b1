"""The guessing game with a context that is rebuilt at every turn."""

import re

from longloop.envs.guess import Guess
from longloop.envs.rebuilt import Rebuilt


class RebuiltGuess(Rebuilt, Guess):
    """The tiny model's tokenizer knows no angle brackets: a report is quoted."""

    instruction = ""
    report = re.compile(r"'(.*?)'", re.DOTALL)
