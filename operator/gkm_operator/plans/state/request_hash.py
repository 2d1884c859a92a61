"""The request of a Run as a hash: runs with equal hashes get equal plans. Pure."""

import hashlib

import msgspec
from gkm.api.runs import RunSpec
from msgspec import structs

from gkm_operator.plans.state.objects import REPLAN_ANNOTATION, WatchedRun


def request_hash(spec: RunSpec) -> str:
    """Return the sha256, in hex, of the fields that decide a plan: all but priority and labels."""
    relevant = structs.replace(spec, priority=0, labels={})
    return hashlib.sha256(msgspec.json.encode(relevant, order="sorted")).hexdigest()


def replan_annotation(run: WatchedRun) -> str:
    """Return the annotation that requests a new plan, "" without it; a long one is hashed."""
    return run.metadata.annotation(REPLAN_ANNOTATION)
