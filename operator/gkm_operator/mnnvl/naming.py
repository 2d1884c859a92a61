"""Names of ComputeDomains. Each is also the name of the domain's ResourceClaimTemplate, and the value of a label."""

import hashlib

MAX_NAME_LENGTH = 63
"""A label has the name as its value; Kubernetes limits values to 63 characters."""
_SUFFIX_LENGTH = 12
"""Hexadecimal digits: of 10,000 names with one beginning, two agree with a probability of 2 in 10 million."""


def domain_name(pod_clique_set: str, replica: int, group: str) -> str:
    """Return the name as Grove makes it: `SET-REPLICA`, or `SET-REPLICA-GROUP`; a longer one ends in a hash."""
    name = _plain_name(pod_clique_set, replica, group)
    return name if len(name) <= MAX_NAME_LENGTH else alternative_name(pod_clique_set, replica, group)


def alternative_name(pod_clique_set: str, replica: int, group: str, uid: str = "") -> str:
    """Return the name for a domain whose first name is too long, or belongs to another object.

    `foo-0-1-x` is group `1-x` of set `foo`, and group `x` of set `foo-0`: the hash is that of the separate parts. With
    the `uid` of the set, no former set of the name has it.
    """
    parts = "\0".join((pod_clique_set, str(replica), group, *([uid] if uid else [])))
    suffix = hashlib.sha256(parts.encode()).hexdigest()[:_SUFFIX_LENGTH]
    start = _plain_name(pod_clique_set, replica, group)[: MAX_NAME_LENGTH - _SUFFIX_LENGTH - 1]
    return f"{start.rstrip('-.')}-{suffix}"


def _plain_name(pod_clique_set: str, replica: int, group: str) -> str:
    return f"{pod_clique_set}-{replica}-{group}" if group else f"{pod_clique_set}-{replica}"
