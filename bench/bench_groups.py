"""COUNT TaskGroups of five objects created at once, and deleted at once; what each costs, and what is left.

`create_s` is from the first TaskGroup to the last one that is Running, `destroy_s` from the first deletion to the last
TaskGroup that is gone. `requests_per_object` are all requests of the controllers but watches and the leader's lease,
events included, from the first TaskGroup to the last deletion, for each object. `leaked` counts the objects with the
label of a group afterwards. `render_p50_ms` is one group from its templates to its objects; `hostile_refused_s` and
`hostile_rss_mib` are those of the worst hostile template of the tests.

The processes share the machine's cores with the API server, etcd, the controller-manager and the bench.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles

import controllers_requests
import groups_load
import groups_place
import groups_rendering
from figures import Result
from fleet_process import memory_mib
from groups_load import OBJECTS
from groups_place import GroupsPlace
from support.host.waiting import until

RUNS = int(os.environ.get("RUNS", "3"))
COUNT = int(os.environ.get("COUNT", "1000"))
REQUIRED = COUNT * len(OBJECTS)
LONGEST_SECONDS = 900.0
COLLECT_SECONDS = 60.0

Row = dict[str, float]


def run() -> Result:
    """Measure; every run begins with an empty cluster."""
    return Result.of([_once(number) for number in range(1, RUNS + 1)])


def _once(number: int) -> Row:
    with (
        tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True) as directory,
        groups_place.start(Path(directory)) as place,
    ):
        row = _measured(place)
    took = groups_rendering.render_milliseconds()
    row |= {"render_p50_ms": median(took), "render_p99_ms": quantiles(took, n=100)[-1]} | groups_rendering.hostile()
    shown = ", ".join(f"{name} {value:.2f}" for name, value in row.items())
    sys.stderr.write(f"groups: run {number} of {RUNS}: {shown}\n")
    return row


def _measured(place: GroupsPlace) -> Row:
    groups_load.create_pool(place.api)
    controllers_requests.until_calm(place.audit, LONGEST_SECONDS)
    before = controllers_requests.count(place.audit)
    began = time.monotonic()
    groups_load.create_groups(place.api, COUNT)
    row = {"engine_s": time.monotonic() - began}
    _until(lambda: groups_load.count_of(place.cluster, groups_load.OBJECT_KINDS[0]) == COUNT, "a ComputeDomain each")
    _until(lambda: groups_load.phases(place.api) == ["Running"] * COUNT, f"{COUNT} groups to be Running")
    row["create_s"] = time.monotonic() - began
    row["created"] = float(groups_load.left(place.api))
    controllers_requests.until_calm(place.audit, LONGEST_SECONDS)
    row["requests_to_create"] = (controllers_requests.count(place.audit) - before) / REQUIRED
    began = time.monotonic()
    groups_load.delete_groups(place.api, COUNT)
    _until(lambda: not groups_load.count_of(place.cluster, groups_load.GROUP_KIND), "no TaskGroup")
    row["destroy_s"] = time.monotonic() - began
    controllers_requests.until_calm(place.audit, LONGEST_SECONDS)
    with suppress(TimeoutError):
        until(lambda: not groups_load.left(place.api), "no object", COLLECT_SECONDS, every=0.25)
    row["leaked"] = float(groups_load.left(place.api))
    row["requests_per_object"] = (controllers_requests.count(place.audit) - before) / REQUIRED
    for name, process in place.gkm.processes.items():
        row[f"{name}_rss_mib"] = memory_mib(process.pid, "VmHWM")
    return row


def _until(reached: Callable[[], bool], what: str) -> None:
    until(reached, what, LONGEST_SECONDS, every=0.25)
