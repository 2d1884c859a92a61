"""Whether the files of a capture are there already: in the cache below them, or in another capture of this node."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import InvalidName
from gkm.images.pulling import entry, file_list
from gkm.images.pulling.extract import MAX_FILES

from gkm_agent.capturing import progress
from gkm_agent.capturing.inspection import Inspection
from gkm_agent.capturing.progress import CaptureOrigin, CaptureState

_OFFERED = (
    CaptureState.INSPECTED,
    CaptureState.PACKED,
    CaptureState.PUSHED,
    CaptureState.SIGNED,
    CaptureState.ANNOUNCED,
)


def check_new(
    layout: Layout, directory: Path, origin: CaptureOrigin, found: Inspection, others: Iterable[Path]
) -> None:
    """Check that nothing offers these files to the namespace yet; `others` are the other captures of this node.

    Raises:
        GKMError: NOT_REQUIRED; the message says where they are.
    """
    if origin.digest and _are_in_entry(layout, origin.digest, found):
        raise GKMError(Reason.NOT_REQUIRED, f"every file is in the mounted cache {origin.digest}")
    for other in others:
        if other == directory:
            continue
        with suppress(UnreadableState):
            same = progress.origin(other).pod_namespace == origin.pod_namespace
            done = progress.load(other)
            if same and done.content_digest == found.content_digest and done.state in _OFFERED:
                raise GKMError(Reason.NOT_REQUIRED, f"the capture of volume {other.name} has the same content")


def _are_in_entry(layout: Layout, digest: str, found: Inspection) -> bool:
    """Return whether an entry of the store has every file.

    Group files do not count: they name the path of a mount, and their kernel is beside them.
    """
    missing = {
        (file.path, file.sha256) for file in found.files if not file.path.rpartition("/")[2].startswith("__grp__")
    }
    try:
        with file_list.open_list(layout.entry(digest) / entry.FILE_LIST) as (_, files):
            for file in islice(files, MAX_FILES):
                missing.discard((file.path, file.sha256))
                if not missing:
                    return True
    except (FileNotFoundError, UnreadableState, InvalidName):
        return False
    return not missing
