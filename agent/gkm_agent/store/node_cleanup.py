"""The removal of everything that GKM has on a node (`gkm-agent --remove-state`), after its other processes have ended.

It removes nothing while a volume is mounted: the overlay of a running pod lies on the store. It removes only what GKM
makes, by name: an administrator may have given GKM a directory that has other files too.

The sockets of the CSI driver are part of it: they stay when that process ends, so that kubelet waits for the next one.
Without them kubelet takes the driver off its list, and the API server's CSINode and Node have no trace of it.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from gkm.api.installation import DRIVER
from gkm.hoststate import files, locks, records, trees
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields

_LOG = logging.getLogger(__name__)

SHOWN = 20
"""Number of volumes or files in a message."""
PREDECESSOR_SECONDS = 60.0
"""Agent and CSI driver have twice the time that the kubelet gives them to end."""


class VolumesMounted(Exception):
    """Pods of this node still use volumes; the message names these."""


class StillRunning(Exception):
    """A process of GKM has not ended; the message names it."""


def remove_state(layout: Layout, kubelet: Path, predecessor_seconds: float = PREDECESSOR_SECONDS) -> None:
    """Remove all that GKM has in its directories and in kubelet's, and its own if nothing else is in them; idempotent.

    Raises:
        VolumesMounted: there are records of volumes.
        StillRunning: an agent or a CSI driver has not ended within `predecessor_seconds`.
        OSError: something cannot be removed.
    """
    with ExitStack() as stack:
        for process in ("agent", "csi"):
            try:
                stack.enter_context(locks.process_lock(layout.process_lock(process), predecessor_seconds))
            except locks.LockBusy as error:
                raise StillRunning(f"gkm-{process} runs on this node: delete its DaemonSet first") from error
        # Only now: a CSI driver that runs may mount another one.
        if volumes := sorted(_volumes(layout)):
            raise VolumesMounted(f"volumes are mounted ({len(volumes)}): {_some(volumes)}")
        (kubelet / "plugins_registry" / f"{DRIVER}-reg.sock").unlink(missing_ok=True)
        for path in (kubelet / "plugins" / DRIVER, *layout.owned, *files.temporaries(layout.catalog)):
            trees.remove(path)
        for directory in (layout.state, layout.run):
            files.remove_empty(directory)
            others = files.names_in(directory) if directory.is_dir() else []
            found = fields(others=_some(others)) if others else {}
            _LOG.info("state removed", extra=fields(directory=str(directory)) | found)


def _volumes(layout: Layout) -> Iterator[str]:
    with suppress(FileNotFoundError):
        yield from records.volume_ids(layout)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
