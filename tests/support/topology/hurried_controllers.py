"""`gkm-operator` that writes HyperNodes one by one, with pauses between them in which a test can kill it.

It waits less than what ships before it writes: the test knows when the process before it has ended.
"""

import sys
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

from gkm_operator import controllers
from gkm_operator.hypernodes import controller
from gkm_operator.main import main

WRITE_SECONDS = 0.15
QUIET_SECONDS = 1.0
CALM_SECONDS = 0.1

if __name__ == "__main__":
    with ExitStack() as stack:
        hurried = partial(
            controller.TopologyController, check_seconds=2.0, calm_seconds=CALM_SECONDS, quiet_seconds=QUIET_SECONDS
        )
        stack.enter_context(patch.object(controllers, "TopologyController", hurried))
        for name, value in (("WRITES_BURST", 1), ("WRITE_SECONDS", WRITE_SECONDS), ("LEAST_SECONDS", 0.1)):
            stack.enter_context(patch.object(controller, name, value))
        sys.exit(main())
