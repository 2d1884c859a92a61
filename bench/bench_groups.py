"""Many TaskGroups of five objects created at once, and deleted at once; what each costs, and what is left.

`create_s` is from the first TaskGroup to the last one that is Running, `destroy_s` from the first deletion to the last
TaskGroup that is gone. `requests_per_object` are all requests of the controllers but watches and the leader's lease,
events included, from the first TaskGroup to the last deletion, for each object. `leaked` counts the objects with the
label of a group afterwards. `render_p50_ms` is one group from its templates to its objects; `hostile_refused_s` and
`hostile_rss_mib` are those of the worst hostile template of the tests, of which the smallest size has the first ones.

The processes share the machine's cores with the API server, etcd, the controller-manager and the bench.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import controllers_requests
import groups_load
import groups_place
import groups_rendering
from figures import Result
from groups_load import OBJECTS
from groups_place import GroupsPlace
from process_cost import memory_mib
from support.host.waiting import until
from support.templates.hostile import BOMBS

LONGEST_SECONDS = 900.0
COLLECT_SECONDS = 60.0

Row = dict[str, float]


@dataclass(frozen=True)
class GroupsSize:
    """How many runs, groups, renderings and hostile templates there are, and when the controllers have finished."""

    runs: int
    groups: int
    renderings: int
    hostile: int
    calm_seconds: float

    @property
    def objects(self) -> int:
        """Return how many objects the groups have."""
        return self.groups * len(OBJECTS)


FULL = GroupsSize(runs=3, groups=1000, renderings=1000, hostile=len(BOMBS), calm_seconds=5.0)
SMALLEST = GroupsSize(runs=1, groups=10, renderings=10, hostile=2, calm_seconds=1.0)


def run(size: GroupsSize) -> Result:
    """Measure; every run begins with an empty cluster."""
    return Result.of([_once(size, number) for number in range(1, size.runs + 1)])


def _once(size: GroupsSize, number: int) -> Row:
    with (
        tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True) as directory,
        groups_place.start(Path(directory)) as place,
    ):
        row = _measured(size, place)
    took = groups_rendering.render_milliseconds(size.renderings)
    row |= {"render_p50_ms": median(took), "render_p99_ms": quantiles(took, n=100)[-1]}
    row |= groups_rendering.hostile(size.hostile)
    shown = ", ".join(f"{name} {value:.2f}" for name, value in row.items())
    sys.stderr.write(f"groups: run {number} of {size.runs}: {shown}\n")
    return row


def _measured(size: GroupsSize, place: GroupsPlace) -> Row:
    groups_load.create_pool(place.api)
    controllers_requests.until_calm(place.audit, size.calm_seconds, LONGEST_SECONDS)
    before = controllers_requests.count(place.audit)
    began = time.monotonic()
    groups_load.create_groups(place.api, size.groups)
    row = {"engine_s": time.monotonic() - began}
    domains = groups_load.OBJECT_KINDS[0]
    _until(lambda: groups_load.count_of(place.cluster, domains) == size.groups, "a ComputeDomain each")
    _until(lambda: groups_load.phases(place.api) == ["Running"] * size.groups, f"{size.groups} groups to be Running")
    row["create_s"] = time.monotonic() - began
    row["created"] = float(groups_load.left(place.api))
    controllers_requests.until_calm(place.audit, size.calm_seconds, LONGEST_SECONDS)
    row["requests_to_create"] = (controllers_requests.count(place.audit) - before) / size.objects
    began = time.monotonic()
    groups_load.delete_groups(place.api, size.groups)
    _until(lambda: not groups_load.count_of(place.cluster, groups_load.GROUP_KIND), "no TaskGroup")
    row["destroy_s"] = time.monotonic() - began
    controllers_requests.until_calm(place.audit, size.calm_seconds, LONGEST_SECONDS)
    with suppress(TimeoutError):
        until(lambda: not groups_load.left(place.api), "no object", COLLECT_SECONDS, every=0.25)
    row["leaked"] = float(groups_load.left(place.api))
    row["requests_per_object"] = (controllers_requests.count(place.audit) - before) / size.objects
    for name, process in place.gkm.processes.items():
        row[f"{name}_rss_mib"] = memory_mib(process.pid, "VmHWM")
    return row


def _until(reached: Callable[[], bool], what: str) -> None:
    until(reached, what, LONGEST_SECONDS, every=0.25)
