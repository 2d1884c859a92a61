"""What a Run asks for, as a text that is equal while nothing is that matters to its plan. Pure."""

import hashlib

import msgspec
from gkm.api.runs import RunSpec
from msgspec import structs

from gkm_operator.plans.state.objects import AGAIN, WatchedRun


def request_hash(spec: RunSpec) -> str:
    """Return the sha256, in hex, of all that a plan is made from: not the priority, and not labels for others."""
    matters = structs.replace(spec, priority=0, labels={})
    return hashlib.sha256(msgspec.json.encode(matters, order="sorted")).hexdigest()


def replan_annotation(run: WatchedRun) -> str:
    """Return what asks for a new plan, "" where nothing does; of a long text its sha256 stands for it."""
    return run.metadata.annotation(AGAIN)
