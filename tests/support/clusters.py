"""A Ray cluster of pretended machines, all of them here."""

import os
from typing import Any

MEMORY = 100 << 20
"""Bytes of each machine's object store."""


def cluster() -> Any:
    """Start a cluster whose head has one core, and connect to it. A machine that is lost is missed within seconds: Ray
    asks for signs of life every half second, not every three, and waits for an answer as long as ever. Its processes
    are no nicer than others: where the suite leaves no core idle, they would take minutes to start."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # nothing is written to the home folder
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head | {"_system_config": {"health_check_period_ms": 500}})
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    return made
