"""`gkm-operator` with shorter waits than it ships with: `python hurried.py COMMAND ARGUMENTS`.

For tests whose statement holds for any length of them. What ships is what all other tests run.
"""

import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from gkm.kube.elector import Elector
from gkm.kube.leases import LeaseTiming
from gkm_operator import controllers
from gkm_operator.admission import command as admission
from gkm_operator.admission.certificates.rotation import SHIPPED
from gkm_operator.computedomains.controller import DomainsController
from gkm_operator.main import main

LEASE = LeaseTiming(duration=5.0, deadline=4.0, retry=0.5)
LEASE_PATIENCE_SECONDS = 1.0
CHECK_SECONDS = 1.0
"""Between two looks at the webhook's CAs."""
LOOK_SECONDS = 1.0
"""Between two looks whether ComputeDomains are installed, and whether Grove manages them."""

if __name__ == "__main__":
    with ExitStack() as stack:
        stack.enter_context(patch.object(controllers, "Elector", partial(Elector, timing=LEASE)))
        stack.enter_context(patch.object(controllers, "LEASE_PATIENCE_SECONDS", LEASE_PATIENCE_SECONDS))
        domains = partial(DomainsController, look_seconds=LOOK_SECONDS)
        stack.enter_context(patch.object(controllers, "DomainsController", domains))
        times = replace(SHIPPED, check_seconds=CHECK_SECONDS)
        stack.enter_context(patch.object(admission, "run", partial(admission.run, times=times)))
        sys.exit(main())
