"""`gkm exec`: run a program with a verified cache on a machine without a cluster.

Everything that this command prints goes to standard error: standard output belongs to the program. Every step can be
killed: what it leaves is either complete or removed by the next run. Mounts belong to a namespace that ends with the
program. Where mounting is not possible, the cache is a directory of hard links to read, which only modes protect, or a
private copy to write in; a program that modes do not bind, as root in a container, always gets a private copy.
"""

import errno
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from gkm.api.errors import GKMError, Reason
from gkm.gpus import preflight
from gkm.gpus.values import printable
from gkm.hoststate import files, trees
from gkm.hoststate.escaping import escape
from gkm.hoststate.files import closing
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.image_store import ImageSource
from gkm.images.pulling import entry, pull
from gkm.images.pulling.pull import PullStage
from gkm.mounts import overlay, safe_open, syscalls
from gkm.mounts.relocation import tree_store
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_store import RelocationLayer
from gkm.mounts.relocation.tree_writer import Unrelocatable
from gkm.runtimes import BY_NAME
from gkm.runtimes.placement import environment

from gkm_cli.cache.extraction import relocate
from gkm_cli.cache.machines import GPUOption, GPUsOption, machines
from gkm_cli.cache.run_store import MAX_BYTES, RunStore, default_directory, retried_while_busy
from gkm_cli.output import NegativeResult, UsageError
from gkm_cli.progress import progress_bars
from gkm_cli.registries import RegistryAccess
from gkm_cli.signers import SignerOptions, verification, verify_image

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of a shell for a program that cannot be run (POSIX.1-2017, 2.8.2)."""
_GIB = 1 << 30
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
CommandArgument = Annotated[list[str], typer.Argument(metavar="-- CMD…", help="The program and its arguments.")]
_SEALED, _SEALED_FILE = 0o555, 0o444
_OPEN, _OPEN_FILE = 0o755, 0o644
_EXECUTABLE = 0o100


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The view of the program, and the place of its cache."""

    cache: Annotated[
        str,
        typer.Option(
            "--cache", metavar="REF", help="registry/repository:tag or @sha256:…, oci:PATH:TAG, docker-archive:FILE"
        ),
    ]
    gpu: GPUOption = ""
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


def execute(command: CommandArgument, *, options: RunOptions, signers: SignerOptions, access: RegistryAccess) -> None:
    """Run a program with a verified cache on this machine, without a cluster, with the exit code of the program."""
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
    _check_gpus(image, options)
    names = [kind.value for kind in image.formats]
    options = replace(options, writable=options.writable or any(BY_NAME[each].needs_private_layer for each in names))
    with _modes():
        store.make()
        store.use(image.digest)
        _pull(store, registry, image, access)
        path = _provided(store, image.digest, options)
    access.scratch.close()
    _become(command, environment(names, str(path)))


def _check_gpus(image: CacheImage, options: RunOptions) -> None:
    verdicts = [(node.name, preflight.check(image.targets, node.gpus)) for node in machines(options.gpu, options.gpus)]
    if not any(verdict.fits for _, verdict in verdicts):
        _refuse(
            "; ".join(
                f"{printable(name)}: {verdict.message}" if name else verdict.message for name, verdict in verdicts
            )
        )


def _pull(store: RunStore, registry: ImageSource, image: CacheImage, access: RegistryAccess) -> None:
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


def _fetch(store: RunStore, registry: ImageSource, image: CacheImage, max_bytes: int) -> None:
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
    if can_mount():
        return mount(store, digest, int(options.size_gib * _GIB) if options.writable else None)
    if options.writable or not can_share(store, digest):
        return private_copy(store, digest)
    return view(store, digest)


@contextmanager
def _modes() -> Iterator[None]:
    """Make files that their owner can read and others cannot write, for any later umask of the program."""
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


def can_mount() -> bool:
    """Return whether this process may mount, in a new namespace."""
    return os.geteuid() == 0 and not overlay.missing_features()


def mount(store: RunStore, digest: str, private_bytes: int | None) -> Path:
    """Enter a new mount namespace and return the path of the cache in it.

    It is read-only; with `private_bytes` it has a private layer of that size on top, in memory, which ends with it.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is no cache.
        CommandFailed: another run takes too long.
        OSError: the kernel or the disk refused.
    """
    layout = store.layout
    point = store.mounts / layout.entry(digest).name
    point.mkdir(exist_ok=True)
    layer = RelocationLayer(MountPath(str(point)), is_writable=private_bytes is not None)
    # Before anything is opened: a layer must be in the namespace of the overlay (EINVAL otherwise).
    syscalls.enter_private_mounts()
    with ExitStack() as stack:
        relative = layout.entry(digest).relative_to(layout.state) / entry.CONTENT
        content = stack.enter_context(safe_open.open_directory(layout.state, str(relative)))
        tree = _relocated(content, layer, store.trees(digest))
        top = stack.enter_context(safe_open.open_directory(layout.state, str(tree.relative_to(layout.state))))
        empty = stack.enter_context(safe_open.open_directory(layout.state, layout.empty.name))
        target = stack.enter_context(closing(os.open(point, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)))
        if private_bytes is None:
            overlay.mount_read_only((top, content, empty), target, f"gkm-exec:{digest}")
        else:
            # One directory for all runs: what is mounted on it is in the namespace of one.
            scratch = layout.run / "layer"
            overlay.mount_private(
                (top, content, empty), target, f"gkm-exec:{digest}", scratch=scratch, size=private_bytes
            )
    return point


def _relocated(content: int, layer: RelocationLayer, trees: Path) -> Path:
    try:
        return retried_while_busy(lambda: tree_store.relocate(content, layer, trees))
    except Unrelocatable as error:
        raise GKMError(Reason.UNSAFE_CONTENT, f"the paths in the cache cannot be rewritten: {error}") from error


def can_share(store: RunStore, digest: str) -> bool:
    """Return whether the modes of sealed directories bind this process: not root, not CAP_DAC_OVERRIDE."""
    return not os.access(store.layout.entry(digest) / entry.CONTENT, os.W_OK, effective_ids=True)


def view(store: RunStore, digest: str) -> Path:
    """Return a directory with the cache, for reading: made once, and shared by all runs.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is no cache.
        CommandFailed: another run takes too long.
        OSError: the disk refused.
    """
    path = store.view(digest)
    content = path / entry.CONTENT
    if not content.exists():
        with store.building():
            work = _build(store, digest, content, os.link, _SEALED_FILE)
            _seal(str(work / entry.CONTENT))
            files.sync_file_system(work)
            _publish(store, work, path)
    return content


def private_copy(store: RunStore, digest: str) -> Path:
    """Return a directory with a copy of the cache, which ends with the program.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is no cache.
        CommandFailed: another run takes too long.
        OSError: the disk refused.
    """
    path = store.new_copy(digest)
    with store.building():
        _build(store, digest, path / entry.CONTENT, _copy, _OPEN_FILE).rename(path)
    return path / entry.CONTENT


def _build(store: RunStore, digest: str, path: Path, transfer: Callable[[str, str], object], mode: int) -> Path:
    """Return a new directory with the content in CONTENT, which will be `path`, by `transfer` of each file."""
    work = store.layout.work / f"{store.layout.entry(digest).name[:12]}-{secrets.token_hex(8)}"
    work.mkdir(_OPEN)
    _transfer(str(store.layout.entry(digest) / entry.CONTENT), str(work / entry.CONTENT), transfer)
    relocate(work / entry.CONTENT, work / "relocated", MountPath(str(path)), mode)
    trees.remove(work / "relocated")
    return work


def _publish(store: RunStore, work: Path, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        work.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        store.discard(work)  # another run was faster


def _transfer(source: str, destination: str, transfer: Callable[[str, str], object]) -> None:
    os.mkdir(destination, _OPEN)  # noqa: PTH102 -- one of thousands: no path object for each
    with os.scandir(source) as found:
        for one in found:
            below = f"{destination}/{one.name}"
            if one.is_dir(follow_symlinks=False):
                _transfer(one.path, below, transfer)
            else:
                transfer(one.path, below)


def _copy(source: str, destination: str) -> None:
    """Copy a file: the program may write in it, and all other runs share the original."""
    shutil.copy(source, destination, follow_symlinks=False)
    is_executable = os.lstat(destination).st_mode & _EXECUTABLE
    os.chmod(destination, _OPEN if is_executable else _OPEN_FILE)  # noqa: PTH101 -- as above


def _seal(directory: str) -> None:
    """Remove the write permission of directories; the files are links to sealed ones, or sealed."""
    with os.scandir(directory) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False):
                _seal(one.path)
    os.chmod(directory, _SEALED)  # noqa: PTH101 -- as above
