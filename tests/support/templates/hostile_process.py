"""Renders every bomb of `support.templates.hostile` and prints how it ended: a line of JSON each.

A process of its own: the kernel's count of the memory of ended children is that of the children that render. An
argument replaces the deadline of requests in seconds, so that only the limits that the kernel enforces end them.
"""

import json
import resource
import sys
import time

from gkm.templates.groups import SAMPLE_GROUP, variables
from gkm.templates.rendering import child_process
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import RenderingFailed, RenderingUnavailable
from support.templates.hostile import BOMBS
from support.templates.objects import config_map


def main() -> None:
    if len(sys.argv) > 1:
        child_process.REQUEST_SECONDS = float(sys.argv[1])
    values = variables(SAMPLE_GROUP)
    for name, text in BOMBS.items():
        renderer = RenderingProcess()
        renderer.render([config_map()], values)
        began = time.monotonic()
        outcome = "rendered"
        try:
            renderer.render([config_map(value=text)], values)
        except (RenderingFailed, RenderingUnavailable) as error:
            outcome = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - began
        # Reaps the child, also one that has survived.
        renderer.close()
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(json.dumps({"name": name, "outcome": outcome, "seconds": seconds, "peak_bytes": peak}), flush=True)


if __name__ == "__main__":
    main()
