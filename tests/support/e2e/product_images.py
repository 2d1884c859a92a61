"""What the tests of our images share."""

from dataclasses import dataclass

from support.cluster.deployment import Deployment
from support.e2e.fleet import Fleet


@dataclass(frozen=True)
class Deployed:
    """GKM in pods, and what tests do with it."""

    fleet: Fleet
    pods: Deployment
