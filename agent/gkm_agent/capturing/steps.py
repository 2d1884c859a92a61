"""The steps that turn a capture into a signed image; each can be killed and repeated at any point.

If a step raises an error, a later attempt repeats it. If the captured files are invalid, the capture is refused for
good; no file has left the node then, because the inspection comes first. A capture whose files all exist already, in
the mounted cache or in another capture of this node, is not made into an image.
"""

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, Final

import msgspec
from gkm.api.config import Capture
from gkm.api.errors import GKMError, Reason, Remedy
from gkm.api.targets import GpuTarget
from gkm.gpus.values import Inventory
from gkm.hoststate import files, trees
from gkm.hoststate.disk_space import FULL, spare_bytes
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import InvalidName
from gkm.images.archives import oci_layout
from gkm.images.assembly.image import BaseLayers, pack
from gkm.images.assembly.several import scan_captured
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.captured.content import Hardware, image_tag, repository
from gkm.images.local_image import LocalImage
from gkm.images.pulling import entry, file_list
from gkm.images.pulling.extract import MAX_FILES
from gkm.images.reference import Reference
from gkm.runtimes.placement import directory_of, names_in
from gkm.runtimes.triton import GROUP

from gkm_agent.capturing import progress
from gkm_agent.capturing.destination import CaptureStopped, RegistryDestination, UploadPace
from gkm_agent.capturing.family_base import WORK as UNION
from gkm_agent.capturing.family_base import chosen_base, family_of, files_in, union
from gkm_agent.capturing.inspection import Inspection, inspect
from gkm_agent.capturing.progress import FILES_FILE, IMAGE, PROGRESS_FILE, CaptureOrigin, CaptureState, Progress
from gkm_agent.telemetry import metrics

_WORK: Final = ".packing-"
MAX_ATTEMPTS: Final = 8
"""How often the agent packs one capture again on a newer generation. Each time makes another image."""
_DAMAGED: Final = frozenset(
    {Reason.METADATA_MISSING, Reason.METADATA_INVALID, Reason.DIGEST_MISMATCH, Reason.UNSAFE_CONTENT, Reason.TOO_LARGE}
)
_NO_IMAGE: Final = (CaptureState.CAPTURED, CaptureState.DUPLICATE, CaptureState.REFUSED)
"""A capture in one of these states replaces no other one: it was not inspected yet, or its files get no image."""
_UNKNOWN_HARDWARE: Final = frozenset({Reason.NO_GPU, Reason.GPU_LOST})


@dataclass(frozen=True, slots=True)
class CaptureSteps:
    """Runs the steps that turn captures of a node into signed images. Only one thread may use it."""

    layout: Layout
    settings: Capture
    destination: RegistryDestination
    inventory: Callable[[], Inventory]
    stop: Event
    spare_bytes: Callable[[Path, float], int] = spare_bytes
    union: str = field(default_factory=lambda: f"{UNION}{secrets.token_hex(4)}")
    """The name of the directory with the union of capture and base; random, so that a new process checks the base
    again."""

    def advance(self, directory: Path, others: Iterable[Path]) -> Progress:
        """Run the next step of a capture, record the result and return the new progress.

        Raises:
            GKMError: the step failed and can be tried again; the record may be from an earlier step.
            UnreadableState: the description of the capture is unusable.
            OSError: a disk operation failed.
            CaptureStopped: the agent is stopping.
        """
        if self.stop.is_set():
            raise CaptureStopped
        before, origin = progress.load(directory), progress.origin(directory)
        match before.state:
            case CaptureState.CAPTURED:
                after = self._inspect(directory, origin, before, others)
            case CaptureState.INSPECTED:
                try:
                    after = self._pack(directory, origin, before)
                finally:
                    trees.remove(directory / self.union)
            case CaptureState.PACKED:
                after = self._push(directory, origin, before)
            case CaptureState.PUSHED:
                after = self._sign(directory, before)
            case CaptureState.SIGNED:
                after = self._attest(directory, origin, before)
            case _:
                return before
        progress.save(directory, after)
        return after

    def begin_again(self, directory: Path) -> bool:
        """Restart an announced capture if this node now uses a family member that is not based on it.

        Return whether it did. The capture is then packed on top of that generation, or adds no files to it.

        Raises:
            UnreadableState, OSError: the record of the capture or the choice is damaged, or a disk operation failed.
        """
        done = progress.load(directory)
        if done.state is not CaptureState.ANNOUNCED or done.attempts >= MAX_ATTEMPTS:
            return False
        base = self._base(progress.origin(directory))
        if base is None or base.target in (done.digest, done.base_digest):
            return False
        progress.save(directory, Progress(attempts=done.attempts + 1))
        return True

    @staticmethod
    def remove_leftovers(directory: Path, *, besides: str = "") -> None:
        """Remove the packed image and temporary files of a capture, except the directory `besides`; raises OSError."""
        work = (path for pattern in (f"{_WORK}*", f"{UNION}*", f".{IMAGE}-*") for path in directory.glob(pattern))
        for path in (directory / IMAGE, *(found for found in work if found.name != besides)):
            trees.remove(path)
        for name in (PROGRESS_FILE, FILES_FILE):
            for path in files.temporaries(directory / name):
                path.unlink(missing_ok=True)

    def _inspect(self, directory: Path, origin: CaptureOrigin, before: Progress, others: Iterable[Path]) -> Progress:
        self.remove_leftovers(directory)
        if origin.lost:
            return Progress(CaptureState.REFUSED, origin.lost.reason, origin.lost.message)
        base = self._base(origin)
        try:
            with union(self.layout, directory / self.union, base, self._end_if_stopped) as content:
                kept = self._kept(base)
                found = inspect(content, self.inventory(), self.settings.max_bytes, kept)
                if base:
                    _check_adds(base, kept, found)
                check_new(self.layout, directory, origin, found, others)
        except GKMError as error:
            if error.transient or error.reason in _UNKNOWN_HARDWARE or error.reason is Reason.NODE_ERROR:
                raise
            state = CaptureState.DUPLICATE if error.reason is Reason.NOT_REQUIRED else CaptureState.REFUSED
            return Progress(state, error.reason.value, error.message[:1024])
        files.replace(directory / FILES_FILE, msgspec.json.encode(found.files))
        return Progress(
            CaptureState.INSPECTED,
            hardware=found.hardware,
            content_digest=found.content_digest,
            files=len(found.files),
            size_bytes=found.size_bytes,
            base=str(base) if base else "",
            attempts=before.attempts,
        )

    def _base(self, origin: CaptureOrigin) -> Reference | None:
        family = family_of(origin, self.settings.caches)
        return chosen_base(self.layout, family) if family else None

    def _kept(self, base: Reference | None) -> frozenset[str]:
        return files_in(self.layout, base) if base else frozenset()

    def _pack(self, directory: Path, origin: CaptureOrigin, before: Progress) -> Progress:
        if self._has_lost_base(origin, before):
            return Progress(attempts=before.attempts)
        hardware, ref = _hardware(before), self._reference(origin, before)
        self.remove_leftovers(directory, besides=self.union)
        # A layer and its copy in the layout.
        if self.spare_bytes(directory, self.settings.min_free_percent) < 2 * before.size_bytes:
            raise GKMError(Reason.DISK_FULL, "the disk has too little free space to pack a capture", Remedy.FREE_SPACE)
        work = directory / f"{_WORK}{secrets.token_hex(4)}"
        work.mkdir(0o700)
        base = Reference.parse(before.base) if before.base else None
        layers = self._base_layers(base, ref) if base else None
        try:
            stated = [GpuTarget(hardware.backend, hardware.arch.removeprefix("sm_"), hardware.warp_size)]
            with union(self.layout, directory / self.union, base, self._end_if_stopped) as content:
                image = pack(
                    scan_captured(content, stated, self._kept(base)),
                    hardware.runtime,
                    work,
                    versions=DependencyVersions(),
                    report=self._end_if_stopped,
                    base=layers,
                )
            oci_layout.write(image, directory / IMAGE, ref, self._end_if_stopped)
        except GKMError as error:
            if error.transient or error.reason is Reason.NODE_ERROR:
                raise
            return Progress(CaptureState.REFUSED, error.reason.value, error.message[:1024])
        finally:
            trees.remove(work)
        count = len(layers.layers) if layers else 0
        return msgspec.structs.replace(before, state=CaptureState.PACKED, digest=image.digest, base_layers=count)

    def _has_lost_base(self, origin: CaptureOrigin, before: Progress) -> bool:
        """Return whether the store lacks the base of the inspection, and no cache has the agent pull it again."""
        if not before.base:
            return False
        base = Reference.parse(before.base)
        return not self.layout.entry(base.target).exists() and self._base(origin) != base

    def _base_layers(self, base: Reference, ref: Reference) -> BaseLayers | None:
        """Return the layers of the base that the registry has where the image goes; None sends all files."""
        found = self.destination.layers(base) if base.name == ref.name else None
        return replace(found, files=files_in(self.layout, base)) if found else None

    def _push(self, directory: Path, origin: CaptureOrigin, before: Progress) -> Progress:
        ref, image = self._reference(origin, before), self._packed(directory, before)
        pace = UploadPace(self.settings.bytes_per_second, self.stop, metrics.CAPTURE_BYTES.inc)
        try:
            self.destination.push(ref, image, pace)
        except GKMError as error:
            if before.base_layers and not error.transient:
                # The registry may have lost a layer of the base since: pack again, which looks there.
                progress.save(directory, msgspec.structs.replace(before, state=CaptureState.INSPECTED, digest=""))
            raise
        return msgspec.structs.replace(before, state=CaptureState.PUSHED, repository=ref.name)

    def _reference(self, origin: CaptureOrigin, before: Progress) -> Reference:
        """Return where an image goes."""
        hardware = _hardware(before)
        place = repository(self.settings.registry, origin.pod_namespace, hardware.runtime)
        return Reference.parse(f"{place}:{image_tag(hardware, before.content_digest)}")

    def _packed(self, directory: Path, before: Progress) -> LocalImage:
        """Return the packed image; where it is damaged or gone, go back and pack again."""
        try:
            image = oci_layout.open_layout(directory / IMAGE, elsewhere=before.base_layers)
        except FileNotFoundError:
            error = GKMError(
                Reason.NODE_ERROR, "the packed image of the capture is gone from this node", "it is packed again"
            )
        except GKMError as damage:
            if damage.reason not in _DAMAGED:
                raise
            error = GKMError(Reason.NODE_ERROR, f"the packed image is damaged: {damage.message}", "it is packed again")
        else:
            if image.digest == before.digest:
                return image
            error = GKMError(
                Reason.NODE_ERROR, "the packed image of the capture has not the recorded digest", "it is packed again"
            )
        progress.save(directory, msgspec.structs.replace(before, state=CaptureState.INSPECTED, digest=""))
        raise error

    def _sign(self, directory: Path, before: Progress) -> Progress:
        self._in_registry(directory, before, self.destination.sign)
        return msgspec.structs.replace(before, state=CaptureState.SIGNED)

    def _attest(self, directory: Path, origin: CaptureOrigin, before: Progress) -> Progress:
        predicate = {
            "namespace": origin.pod_namespace,
            "time": origin.start_time,
            "contentDigest": before.content_digest,
            "hardware": _hardware(before).key,
            "family": family.name if (family := family_of(origin, self.settings.caches)) else "",
            "base": before.base_digest,
            "files": [msgspec.to_builtins(file) for file in progress.load_files(directory)],
        }

        def sign_and_attest(pinned: Reference) -> None:
            # First: the key may be another one since the image was signed, and one signer must have signed both.
            self.destination.sign(pinned)
            self.destination.attest(pinned, predicate)

        self._in_registry(directory, before, sign_and_attest)
        return msgspec.structs.replace(before, state=CaptureState.ANNOUNCED)

    def _in_registry(self, directory: Path, before: Progress, act: Callable[[Reference], Any]) -> None:
        """Act on the image in the registry; where that lost the image, go back and push again."""
        try:
            act(Reference.parse(f"{before.repository}@{before.digest}"))
        except GKMError as error:
            if error.reason is Reason.NOT_FOUND:
                progress.save(directory, msgspec.structs.replace(before, state=CaptureState.PACKED, repository=""))
            raise

    def _end_if_stopped(self, *_progress: int) -> None:
        if self.stop.is_set():
            raise CaptureStopped


def _check_adds(base: Reference, kept: frozenset[str], found: Inspection) -> None:
    if kept.issuperset(file.path for file in found.files):
        raise GKMError(
            Reason.NOT_REQUIRED, f"every captured file is already in the generation {base.target} of the family"
        )


def _hardware(found: Progress) -> Hardware:
    if found.hardware is None:
        raise GKMError(Reason.NODE_ERROR, "the record of the capture does not name the hardware it is for")
    return found.hardware


def reason_of(error: OSError) -> Reason:
    """Return the reason for an OSError of the disk: DISK_FULL or NODE_ERROR."""
    return Reason.DISK_FULL if error.errno in FULL else Reason.NODE_ERROR


def check_new(
    layout: Layout, directory: Path, origin: CaptureOrigin, found: Inspection, others: Iterable[Path]
) -> None:
    """Check that neither the mounted cache nor a capture in `others` has all of these files already.

    `others` are the other captures of this node.

    Raises:
        GKMError: NOT_REQUIRED: the files exist already, and the message says where.
    """
    if origin.digest and _are_in_entry(layout, origin.digest, found):
        raise GKMError(Reason.NOT_REQUIRED, f"every captured file is already in the mounted cache {origin.digest}")
    for other in others:
        if other == directory:
            continue
        with suppress(UnreadableState):
            theirs, done = progress.origin(other), progress.load(other)
            same = (theirs.pod_namespace, theirs.family) == (origin.pod_namespace, origin.family)
            if same and done.content_digest == found.content_digest and done.state not in _NO_IMAGE:
                raise GKMError(Reason.NOT_REQUIRED, f"the capture of volume {other.name} has the same content")


def _are_in_entry(layout: Layout, digest: str, found: Inspection) -> bool:
    """Return whether an entry of the store has every file.

    Group files do not count: they name the path of a mount, and their kernel is beside them.
    """
    missing = {(file.path, file.sha256) for file in found.files if not file.path.rpartition("/")[2].startswith(GROUP)}
    try:
        with file_list.open_list(layout.entry(digest) / entry.FILE_LIST) as (listed, files):
            # A capture of one cache has no directory of its runtime, an entry of several has.
            place = directory_of(found.hardware.runtime, names_in(listed.format))
            for file in islice(files, MAX_FILES):
                missing.discard((file.path.removeprefix(f"{place}/"), file.sha256))
                if not missing:
                    return True
    except (FileNotFoundError, UnreadableState, InvalidName):
        return False
    return not missing
