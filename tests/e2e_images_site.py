"""What the tests of our images share."""

from dataclasses import dataclass

from e2e_fleet import Fleet
from testbed.deployment import Deployment


@dataclass(frozen=True)
class Deployed:
    """GKM in pods, and what tests do with it."""

    fleet: Fleet
    pods: Deployment
