"""The tiers of tests: the partners that each one may start, and the marker of each folder.

A tier is chosen by GKM_TIER, which the Makefile sets. It keeps each test in the tier that has what the test needs: a
partner of a later tier is refused, so `make test` never builds Kueue because one test asked for it.
"""

import os
from collections.abc import Collection

TIERS = ("check", "test", "partners", "all")
APISERVER = frozenset({"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"})
"""Kubernetes without a node: 470 CPU seconds to build, and no privileges to run."""
RENDERING = frozenset({"helm"})
"""Renders the manifests that tests apply (support.chart.deploy_files)."""
USER_NAMESPACES = frozenset({"containerd2", "containerd-shim-runc-v2", "ctr2", "runc-mapping"})
"""A container runtime that maps the ids of mounts; the one of the machine may be older."""
HEAVY = USER_NAMESPACES | {"kube-state-metrics", "kueue", "kyverno", "policy-tester", "tuf-initialize"}
"""Partners whose builds take minutes each and that few tests need."""
MACHINE = frozenset({"gcc"})
"""Programs of the machine that each tier has; Go is found by `support.peers.go_toolchain`."""
ALLOWED = {"check": MACHINE, "test": MACHINE | APISERVER | RENDERING}
"""The commands that tests of a tier may start. `partners` allows all but HEAVY, `all` and no tier allow everything."""
MARKERS = {
    "apiserver": "apiserver",
    "processes": "processes",
    "crash": "partners",
    "e2e": "partners",
    "hostile": "partners",
    "partners": "partners",
}
"""The marker of every test below tests/<folder>; tests of `unit` and `contract` carry one where they need a partner."""


class OfALaterTier(RuntimeError):
    """A test asks for a partner that its tier does not have."""


def check(command: str) -> None:
    """Let a test start `command`.

    Raises:
        OfALaterTier: the tier in GKM_TIER does not have it.
        ValueError: GKM_TIER names no tier.
    """
    tier = os.environ.get("GKM_TIER") or "all"
    if tier not in TIERS:
        raise ValueError(f"GKM_TIER={tier}: the tiers are {', '.join(TIERS)}")
    if not allows(tier, command):
        raise OfALaterTier(f"the tier {tier!r} has no {command}: give the test the marker or the folder of a later one")


def allows(tier: str, command: str) -> bool:
    """Tell whether tests of a tier may start a command of a partner or of the machine."""
    if tier == "partners":
        return command not in HEAVY
    return tier not in ALLOWED or command in ALLOWED[tier]


def commands(tier: str, known: Collection[str]) -> list[str]:
    """Return those of the `known` commands that a tier has, in their order."""
    return [command for command in known if allows(tier, command)]
