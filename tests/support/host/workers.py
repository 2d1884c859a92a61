"""How slow tests and those with real partners are distributed to the workers of xdist: `pytest -n 3 --dist loadscope`.

Each worker has partners of its own; a machine has one place for a node.
"""

from xdist.scheduler import LoadScopeScheduling

ON_THIS_MACHINE = ("tests/e2e/", "tests/partners/docs/test_container_by_podman.py")
"""The tests of the one node, and podman, whose runc shows in the node's places and processes while it runs.

Namespaces of other tests receive the node's unmounts (support.csi.namespaces).
"""
TOGETHER = (
    "tests/apiserver/operator/domains/",
    "tests/apiserver/operator/group_templates/",
    "tests/partners/domains/",
    "tests/partners/topology/",
)
"""Directories whose modules share an expensive fixture: an idle control plane takes 3 to 8 % of a core to its end."""
EACH_ALONE = (
    "tests/partners/images/test_matrix_by_cosign.py",
    "tests/hostile/",
    "tests/crash/agent/",
    "tests/crash/mounts/",
    "tests/processes/agent/",
    "tests/processes/cli/",
    "tests/unit/core/packing/",
)
"""Tests that share no expensive fixture with their neighbors: any worker runs any of them."""


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Distributes tests by `group`."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Return the name of the tests that one worker runs: the node's, a directory, or a module: they share fixtures."""
    if nodeid.startswith(ON_THIS_MACHINE):
        return "this machine"
    if shared := next(filter(nodeid.startswith, TOGETHER), ""):
        return shared
    return nodeid if nodeid.startswith(EACH_ALONE) else nodeid.partition("::")[0]


def rank(nodeid: str) -> int:
    """Return the place of a test: the longest group first, then modules, which one worker runs.

    Tests that any worker can run are last: they occupy the workers that have no module left.
    """
    if nodeid.startswith(ON_THIS_MACHINE):
        return 0
    return 2 if nodeid.startswith(EACH_ALONE) else 1
