"""What to say when a card runs out of memory in the middle of a run."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import torch

from longloop.memory.forecast import what_to_lower
from longloop.types import RankFull, UserError


@contextmanager
def told(run: Path | None = None) -> Iterator[None]:
    """Raise UserError where the device has no memory left: who holds it, what to lower, how the run goes on."""
    try:
        yield
    except (torch.OutOfMemoryError, RankFull) as error:
        if isinstance(error, RankFull):
            sampling, full = error.sampling, str(error)
        else:
            frames = traceback.extract_tb(error.__traceback__)
            sampling = any("/longloop/engines/" in frame.filename for frame in frames)
            doing = "sampling" if sampling else "computing an update"
            full = f"The card ran out of memory while {doing}{_held()}."
        resume = f"longloop train --resume {quote(str(run))}"
        goes_on = f" Continue with `{resume}` and the lower setting." if run is not None else ""
        raise UserError(
            f"{full} Lower {what_to_lower(sampling)}. `longloop doctor CONFIG --memory` says what a run needs.{goes_on}"
        ) from error


def _held() -> str:
    """Who holds the card's memory, if there is a card."""
    if not torch.cuda.is_available():
        return ""
    free, total = torch.cuda.mem_get_info()
    own = torch.cuda.memory_reserved()
    gib = 2**30
    return (
        f": of {total / gib:.1f} GiB this process holds {own / gib:.1f}, others {(total - free - own) / gib:.1f}, and "
        f"{free / gib:.1f} are free"
    )
