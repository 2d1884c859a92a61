"""How long the objects of one group take, and how long and how much memory the worst hostile template takes.

The hostile templates are those of the tests. Each is rendered by a child of a process of its own, whose children's
peak the kernel counts.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import msgspec
from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import TaskGroup
from gkm.templates.planning import planned_objects
from gkm.templates.pools import PoolTemplate
from gkm.templates.rendering.process import RenderingProcess
from groups_load import OBJECTS, task_group
from support.templates import hostile_process

WARM_UP = 20
HOSTILE_SECONDS = 600.0


def render_milliseconds(times: int) -> list[float]:
    """Return how long the objects of each of so many groups took, from the templates to what is created."""
    templates = [PoolTemplate(f"bench-{number}", value) for number, value in enumerate(OBJECTS)]
    renderer, settings, took = RenderingProcess(), TaskGroups(), []
    try:
        for number in range(WARM_UP + times):
            group = _typed(number)
            began = time.perf_counter()
            objects = planned_objects(group, templates, settings, renderer)
            took.append((time.perf_counter() - began) * 1000)
            if len(objects) != len(OBJECTS):
                raise RuntimeError(f"a group has {len(objects)} objects")
    finally:
        renderer.close()
    return took[WARM_UP:]


def hostile(count: int) -> dict[str, float]:
    """Return the longest time and the largest memory of the first `count` hostile templates.

    Raises:
        RuntimeError: one was rendered.
    """
    words = [sys.executable, str(Path(hostile_process.__file__)), "--first", str(count)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=HOSTILE_SECONDS)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if rendered := [each["name"] for each in found if each["outcome"] == "rendered"]:
        raise RuntimeError(f"hostile templates were rendered: {rendered}")
    return {
        "hostile_templates": float(len(found)),
        "hostile_refused_s": max(each["seconds"] for each in found),
        "hostile_p50_s": median(each["seconds"] for each in found),
        "hostile_rss_mib": max(each["peak_bytes"] for each in found) / (1 << 20),
    }


def _typed(number: int) -> TaskGroup:
    made = task_group(number)
    made["metadata"]["uid"] = made["spec"]["workflow"]["uuid"]
    return msgspec.convert(made, TaskGroup)
