"""The node: the scheduler has found one."""

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome


def decide(facts: Facts) -> Outcome:
    """Decide about the node."""
    if facts.pod.spec.node_name:
        return Holds(facts.pod.spec.node_name)
    messages = (one.message for one in facts.pod.status.conditions or () if one.type == "PodScheduled" and one.message)
    cause = next(messages, "the scheduler has not looked at it")
    return Broken(
        f"the pod has no node: {cause}", "correct what the pod requests, or free a node; GKM is not the cause"
    )
