"""Does the cluster have room for the ranks that a config asks for?"""

from longloop.cluster.placement import asked, connected, inventory
from longloop.config import Config
from longloop.diagnose.finding import Finding
from longloop.types import UserError


def ranks(config: Config) -> Finding:
    """Compare what a run on several ranks asks for with what the machines have when nothing else runs."""
    try:
        with connected(config.ranks) as ray:
            one = asked(ray, config.model.device)
            fits, has = one.fits(ray), inventory(ray)
    except UserError as error:
        return Finding("ranks", "fail", str(error))
    count = config.ranks.count
    seen = f"ranks.count={count} asks for {one.words(count)}. {has[0].upper()}{has[1:]}."
    numbers = {"asked": count, "fits": fits}
    if fits < count:
        todo = "Lower ranks.count, or add machines to the cluster that ranks.address names."
        return Finding("ranks", "fail", f"{seen} That is room for {fits}.", todo, numbers)
    return Finding("ranks", "pass", seen, numbers=numbers)
