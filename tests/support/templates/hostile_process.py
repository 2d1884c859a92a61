"""Renders the bombs of `support.templates.hostile` and prints how each ended: a line of JSON each.

A process of its own: the kernel's count of the memory of ended children is that of the children that render. An
argument replaces the deadline of requests in seconds, so that only the limits that the kernel enforces end them. With
`--first` there are so many bombs, without it all.
"""

import argparse
import json
import resource
import time
from itertools import islice

from gkm.templates.groups import SAMPLE_GROUP, variables
from gkm.templates.rendering import process
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import RenderingFailed, RenderingUnavailable
from support.templates.hostile import BOMBS
from support.templates.objects import config_map


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deadline", nargs="?", type=float, default=process.REQUEST_SECONDS)
    parser.add_argument("--first", type=int, default=len(BOMBS))
    options = parser.parse_args()
    process.REQUEST_SECONDS = options.deadline
    values = variables(SAMPLE_GROUP)
    for name, text in islice(BOMBS.items(), options.first):
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
