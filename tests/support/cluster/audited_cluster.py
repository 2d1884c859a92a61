"""A cluster whose API server keeps an audit log of GKM's accounts, for tests and benches."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from support.cluster.audit import Audit, AuditedControlPlane
from support.cluster.cluster import Cluster
from support.cluster.control_plane import Options


@contextmanager
def audited_cluster(directory: Path) -> Iterator[tuple[Cluster, Audit]]:
    """Start a control plane, and end it with the block."""
    with closing(AuditedControlPlane(directory / "control-plane", Options())) as control_plane:
        control_plane.start()
        yield Cluster(directory, control_plane), control_plane.audit
