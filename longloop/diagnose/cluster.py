"""Does the cluster have what a config asks for: room for ranks, hosts for environments?"""

from longloop.cluster.hosts import HOW, offered, wanted
from longloop.cluster.placement import asked, connected, inventory
from longloop.config import Config
from longloop.diagnose.finding import Finding
from longloop.types import UserError


def ranks(config: Config) -> Finding:
    """Compare what a run on several ranks asks for with what the machines have when nothing else runs."""
    try:
        with connected(config.ranks) as ray:
            one = asked(ray, config.model.device)
            (fits, room), has = one.fits(ray), inventory(ray)
    except UserError as error:
        return Finding("ranks", "fail", str(error))
    count = config.ranks.count
    seen = f"ranks.count={count} asks for {one.words(count)}. {has[0].upper()}{has[1:]}."
    numbers = {"asked": count, "fits": fits}
    if fits < count:
        todo = "Lower ranks.count, or add machines to the cluster that ranks.address names."
        if not fits:
            todo = "Start the run on a machine of the cluster that has what a rank asks for, or add one."
        return Finding("ranks", "fail", f"{seen} That is {room}.", todo, numbers)
    return Finding("ranks", "pass", seen, numbers=numbers)


def hosts(config: Config) -> Finding:
    """Count the machines that offer workers."""
    players = config.ranks.players
    try:
        with connected(config.ranks) as ray:
            machines, has = list(offered(ray, players).values()), inventory(ray)
    except UserError as error:
        return Finding("hosts", "fail", str(error))
    each = sum(size for _, size in machines)
    numbers = {"hosts": len(machines), "workers": each}
    if not machines:
        return Finding("hosts", "fail", f"{wanted(players)}, and there is none: {has}.", f"{HOW}.", numbers)
    names = ", ".join(f"{name} with {size}" for name, size in machines)
    per_rank = " for each rank that plays" if players > 1 else ""
    return Finding("hosts", "pass", f"{each} environment workers{per_rank}: {names}.", numbers=numbers)
