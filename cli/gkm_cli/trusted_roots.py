"""The trusted root of a Sigstore for people: from its TUF repository, with a copy for times without a network.

Only the command line fetches it. Processes in a cluster read the file that a policy names, only. The variables are the
same as for cosign: TUF_MIRROR and TUF_ROOT_JSON name another repository and its first root; without them it is the
public Sigstore, whose first root comes with sigstore-python.
"""

import os
import time
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import files, locks
from gkm.hoststate.locks import LockBusy
from gkm.images.signatures.sigstore_services import SigstoreService
from gkm.images.signatures.trust_material import MAX_ROOT_BYTES
from tuf.api.exceptions import DownloadError, DownloadHTTPError, RepositoryError
from tuf.api.metadata import Metadata, Targets, Timestamp
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from gkm_cli.disks import cache_directory
from gkm_cli.output import CommandFailed, UsageError

PUBLIC_MIRROR = "https://tuf-repo-cdn.sigstore.dev"
FRESH_SECONDS = 86_400.0
"""Within this time after a refresh no command asks the repository again."""
TOTAL_SECONDS = 60.0
_TARGET, _STAMP = "trusted_root.json", "refreshed"
_OK = 200
_NAME_FILE = "name the file with --trusted-root"


def trusted_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file with the current trusted root of Sigstore.

    Raises:
        UsageError: TUF_MIRROR without TUF_ROOT_JSON.
        GKMError: REGISTRY_UNAVAILABLE: the repository does not answer, and there is no valid copy; SIGNATURE_INVALID:
            it serves what its roots did not sign, or what has expired.
        CommandFailed: the copy cannot be written, or another process does that for too long, and there is no valid one.
        OSError: the file in TUF_ROOT_JSON cannot be read.
    """
    mirror = environment.get("TUF_MIRROR", "").rstrip("/") or PUBLIC_MIRROR
    directory = cache_directory(environment) / "tuf" / quote(mirror, safe="")
    copy = directory / "targets" / _TARGET
    if _is_fresh(directory):
        return copy
    first_root = _first_root(mirror, environment)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # tuf replaces its files in several steps.
        with locks.process_lock(directory / "lock", TOTAL_SECONDS):
            if not _is_fresh(directory):
                _refresh(mirror, first_root, directory)
    except (DownloadError, OSError, LockBusy) as error:
        # The copy was verified when it was written, and holds until the repository's own signature of it expires.
        if _is_valid(directory):
            return copy
        if isinstance(error, LockBusy):
            message = f"another process has been fetching the trusted root for {TOTAL_SECONDS:g} seconds"
            raise CommandFailed(f"{message}; wait for it, or {_NAME_FILE}") from error
        if isinstance(error, OSError):
            message = f"the trusted root cannot be stored in {directory}: {error.strerror}"
            raise CommandFailed(f"{message}; set XDG_CACHE_HOME, or {_NAME_FILE}") from error
        raise GKMError(
            Reason.REGISTRY_UNAVAILABLE,
            f"the trusted root cannot be fetched: the TUF repository {mirror} does not answer as it should",
            _NAME_FILE,
        ) from error
    except (RepositoryError, ValueError) as error:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"the TUF repository {mirror} serves what its roots did not sign, or what has expired",
            f"check the clock of this machine and TUF_MIRROR, or {_NAME_FILE}",
        ) from error
    return copy


def _first_root(mirror: str, environment: Mapping[str, str]) -> bytes:
    if named := environment.get("TUF_ROOT_JSON"):
        with Path(named).open("rb") as file:
            return file.read(UpdaterConfig().root_max_length)
    if mirror != PUBLIC_MIRROR:
        raise UsageError(f"TUF_MIRROR is {mirror}, whose first root is not known", "name its file with TUF_ROOT_JSON")
    return resources.files("sigstore").joinpath("_store", quote(mirror, safe=""), "root.json").read_bytes()


def _refresh(mirror: str, first_root: bytes, directory: Path) -> None:
    metadata, targets = directory / "metadata", directory / "targets"
    for path in (metadata, targets):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    updater = Updater(
        metadata_dir=str(metadata),
        metadata_base_url=mirror,
        target_dir=str(targets),
        target_base_url=f"{mirror}/targets/",
        fetcher=_Fetcher(mirror),
        config=UpdaterConfig(max_root_rotations=64, max_delegations=4),
        bootstrap=first_root,
    )
    updater.refresh()
    target = updater.get_targetinfo(_TARGET)
    if target is None or target.length > MAX_ROOT_BYTES:
        raise RepositoryError(f"the TUF repository has no {_TARGET}")
    if updater.find_cached_target(target) is None:
        updater.download_target(target)
    files.replace(directory / _STAMP, b"")


def _is_fresh(directory: Path) -> bool:
    """Return whether the copy is valid and was refreshed within FRESH_SECONDS."""
    try:
        age = time.time() - (directory / _STAMP).stat().st_mtime
    except OSError:
        return False
    return 0 <= age < FRESH_SECONDS and _is_valid(directory)


def _is_valid(directory: Path) -> bool:
    """Return whether the copy is the one of the stored metadata, and that has not expired."""
    metadata = directory / "metadata"
    try:
        timestamp = Metadata[Timestamp].from_bytes((metadata / "timestamp.json").read_bytes()).signed
        targets = Metadata[Targets].from_bytes((metadata / "targets.json").read_bytes()).signed
        if timestamp.is_expired() or targets.is_expired():
            return False
        targets.targets[_TARGET].verify_length_and_hashes((directory / "targets" / _TARGET).read_bytes())
    except (OSError, KeyError, ValueError, RepositoryError):
        return False
    return True


class _Fetcher(FetcherInterface):
    """Fetch files of one repository, bounded in bytes, and in time all together."""

    def __init__(self, mirror: str) -> None:
        self._service = SigstoreService("TUF repository", mirror, until=time.monotonic() + TOTAL_SECONDS)

    def _fetch(self, url: str) -> Iterator[bytes]:
        try:
            answer = self._service.get(url)
        except GKMError as error:
            raise DownloadError(error.message) from error
        if answer.status != _OK:
            raise DownloadHTTPError(f"{url}: {answer.status}", answer.status)
        yield answer.body
