"""`gkm exec`: run a program with a verified cache on a machine without a cluster.

Everything that this command prints goes to standard error: standard output belongs to the program.
"""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from gkm.api.errors import GKMError, Reason
from gkm.gpus import preflight
from gkm.gpus.values import printable
from gkm.hoststate.escaping import escape
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.pulling import entry, pull
from gkm.images.pulling.pull import PullStage
from gkm.images.registries.registry import Registry
from gkm.runtimes import BY_NAME

from gkm_cli.cache.execution import extracted, mounted
from gkm_cli.cache.execution.run_store import MAX_BYTES, RunStore, default_directory
from gkm_cli.cache.gpu_options import GPUsOption
from gkm_cli.cache.machines import machines
from gkm_cli.output import NegativeResult, UsageError
from gkm_cli.progress import progress_bars
from gkm_cli.registries import RegistryAccess
from gkm_cli.signers import SignerOptions, verification, verify_image

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of a shell for a program that cannot be run (POSIX.1-2017, 2.8.2)."""
_GIB = 1 << 30
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the program sees, and where its cache is stored."""

    cache: Annotated[str, typer.Option("--cache", metavar="REF", help="registry/repository:tag or @sha256:…")]
    gpus: GPUsOption = None
    writable: Annotated[
        bool, typer.Option("--rw", help="Let the program add kernels, to a copy or layer that ends with it.")
    ] = False
    size_gib: Annotated[
        float,
        typer.Option(
            "--size-limit",
            metavar="GIB",
            min=0.001,
            max=1024,
            help="Limit of that layer in memory, which only root has.",
        ),
    ] = 1.0
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="DIR",
            help="Where to store caches; default: ~/.cache/gkm/exec, of root /var/cache/gkm/exec.",
        ),
    ] = None


CommandArgument = Annotated[list[str], typer.Argument(metavar="-- CMD…", help="The program and its arguments.")]


def execute(command: CommandArgument, *, options: RunOptions, signers: SignerOptions, access: RegistryAccess) -> None:
    """Run a program with a verified cache on this machine, without a cluster; the exit code is that of the program."""
    _check_program(command[0])
    store = RunStore(options.store or default_directory(os.environ))
    wanted = verification(signers, access.config)
    registry, pinned = access.pinned(options.cache)
    verdict = verify_image(registry, pinned, wanted, signers.namespace)
    if not verdict.allowed:
        _refuse(f"not verified: {verdict.message}")
    if not verdict.verified:
        _print(f"warning: not verified: {verdict.message}")
    image = cache.describe(registry, pinned)
    _check_gpus(image, options.gpus)
    with _modes():
        store.make()
        store.use(image.digest)
        _pull(store, registry, image, access)
        path = _provided(store, image.digest, options)
    _become(command, dict.fromkeys(BY_NAME[image.format.value].variables, str(path)))


def _check_gpus(image: CacheImage, file: Path | None) -> None:
    verdicts = [(node.name, preflight.check(image.targets, node.gpus)) for node in machines(file)]
    if not any(verdict.fits for _, verdict in verdicts):
        _refuse(
            "; ".join(
                f"{printable(name)}: {verdict.message}" if name else verdict.message for name, verdict in verdicts
            )
        )


def _pull(store: RunStore, registry: Registry, image: CacheImage, access: RegistryAccess) -> None:
    if entry.exists(store.layout, image.digest):
        return
    limits = access.config.store
    with store.building():
        try:
            _fetch(store, registry, image, limits.max_image_bytes)
        except GKMError as error:
            # The blobs and the content are on the disk together.
            wanted = image.download_bytes + max(image.download_bytes, image.size_bytes or 0)
            if error.reason is not Reason.DISK_FULL or not store.free(wanted):
                raise
            _fetch(store, registry, image, limits.max_image_bytes)
    store.evict(limits.max_bytes or MAX_BYTES)


def _fetch(store: RunStore, registry: Registry, image: CacheImage, max_bytes: int) -> None:
    total = image.download_bytes
    with progress_bars(*(stage.value for stage in PullStage)) as report:
        pull.fetch(
            registry,
            image,
            store.layout,
            max_bytes=max_bytes,
            progress=lambda stage, percent: report(stage.value, percent * total // 100, total),
        )


def _provided(store: RunStore, digest: str, options: RunOptions) -> Path:
    """Return the path of the cache for the program."""
    if mounted.can_mount():
        return mounted.mount(store, digest, int(options.size_gib * _GIB) if options.writable else None)
    if options.writable or not extracted.can_share(store, digest):
        return extracted.private_copy(store, digest)
    return extracted.view(store, digest)


@contextmanager
def _modes() -> Iterator[None]:
    """Make files that their owner can read and others cannot write, whatever the umask of the program will be."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _check_program(name: str) -> None:
    """Refuse a program that cannot run before anything is fetched for it."""
    if not name:
        raise UsageError("the program has no name", "write it behind --")
    if shutil.which(name) is None:
        code = errno.EACCES if "/" in name and Path(name).exists() else errno.ENOENT
        _exit_without_program(name, OSError(code, os.strerror(code)))


def _exit_without_program(name: str, error: OSError | ValueError) -> NoReturn:
    why = error.strerror if isinstance(error, OSError) else str(error)
    _print(f"error: {name}: {why}; check its name and mode")
    raise typer.Exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE) from error


def _print(text: str) -> None:
    sys.stderr.write(f"{escape(' '.join(text.split()))}\n")


def _become(command: Sequence[str], variables: dict[str, str]) -> NoReturn:
    """Replace this program by the command."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), {**os.environ, **variables})  # noqa: S606 -- the command that the user typed
    except (OSError, ValueError) as error:
        _exit_without_program(command[0], error)


def _refuse(message: str) -> NoReturn:
    _print(message)
    raise NegativeResult
