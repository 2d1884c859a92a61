"""`gkm-operator` with shorter waits than it ships with: `python hurried.py [--short-lease | --short-grace] COMMAND …`.

For tests whose statement holds for any length of them. What ships is what all other tests run. The lease is the one
that ships unless `--short-lease` is given: an API server that a busy machine stops for seconds ends a short one. The
same holds for the grace period of node problems, and `--short-grace`.
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
from gkm_operator.admission.certificates import SHIPPED
from gkm_operator.computedomains.controller import DomainsController
from gkm_operator.main import main
from gkm_operator.plans.controller import PlansController
from gkm_operator.plans.state.node_loss import GracePeriod

LEASE = LeaseTiming(duration=8.0, deadline=7.0, retry=0.5)
LEASE_PATIENCE_SECONDS = 1.0
CHECK_SECONDS = 1.0
"""Between two looks at the webhook's CAs."""
GRACE_SECONDS = 1.0
"""Before a problem of a node moves a group, or a plan follows its pods."""
CHECK_SECONDS = 1.0
"""Between two looks whether ComputeDomains are installed, and whether Grove manages them."""

if __name__ == "__main__":
    with ExitStack() as stack:
        if sys.argv[1] == "--short-lease":
            del sys.argv[1]
            stack.enter_context(patch.object(controllers, "Elector", partial(Elector, timing=LEASE)))
            stack.enter_context(patch.object(controllers, "LEASE_PATIENCE_SECONDS", LEASE_PATIENCE_SECONDS))
        if sys.argv[1] == "--short-grace":
            del sys.argv[1]
            plans = partial(PlansController, grace=GracePeriod(GRACE_SECONDS))
            stack.enter_context(patch.object(controllers, "PlansController", plans))
        domains = partial(DomainsController, check_seconds=CHECK_SECONDS)
        stack.enter_context(patch.object(controllers, "DomainsController", domains))
        times = replace(SHIPPED, check_seconds=CHECK_SECONDS)
        stack.enter_context(patch.object(admission, "run", partial(admission.run, times=times)))
        sys.exit(main())
