"""`gkm exec`: run a program with a verified cache on a machine without a cluster; prepare, list and remove such caches.

With a program, everything that this command prints goes to standard error: standard output belongs to the program.
"""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from gkm.api.errors import GKMError, Reason
from gkm.gpus import preflight
from gkm.gpus.values import printable
from gkm.hoststate.escaping import escape
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.image_store import ImageSource
from gkm.images.pulling import entry, pull
from gkm.images.pulling.pull import PullStage
from gkm.runtimes import BY_NAME
from gkm.runtimes.placement import environment

from gkm_cli import calls
from gkm_cli.cache import stored_caches
from gkm_cli.cache.machines import GPUOption, GPUsOption, machines
from gkm_cli.cache.run_store import MAX_BYTES, RunStore, default_directory
from gkm_cli.cache.run_views import can_mount, can_share, mount, private_copy, view
from gkm_cli.output import NegativeResult, Output, OutputOption, UsageError, line, show
from gkm_cli.progress import progress_bars
from gkm_cli.registries import REF_HELP, RegistryAccess
from gkm_cli.signers import SignerOptions, verification, verify_image

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of a shell for a program that cannot be run (POSIX.1-2017, 2.8.2)."""
_GIB = 1 << 30
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- CMD…", help="The program and its arguments; none with --prepare, --list and --prune."),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `gkm exec`: the cache, the task, and how the program sees the cache."""

    cache: Annotated[str, typer.Option("--cache", metavar="REF", help=REF_HELP)] = ""
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Fetch and verify the cache and lay it out, without a program.")
    ] = False
    listed: Annotated[bool, typer.Option("--list", help="List the caches in the store: size, last use.")] = False
    prune: Annotated[bool, typer.Option("--prune", help="Remove the caches that no program uses.")] = False
    keep_gib: Annotated[
        float,
        typer.Option(
            "--keep", metavar="GIB", min=0, max=1 << 20, help="With --prune: keep the last used caches up to this size."
        ),
    ] = 0.0
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


def execute(
    command: CommandArgument = None,
    *,
    options: RunOptions,
    signers: SignerOptions,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a program with a verified cache on this machine, without a cluster, with the exit code of the program."""
    program = command or []
    check(program, options, output)
    store = RunStore(options.store or default_directory(os.environ))
    if options.listed:
        stored_caches.show_caches(store, output)
        return
    if options.prune:
        stored_caches.prune(store, int(options.keep_gib * _GIB), output)
        return
    if program:
        _check_program(program[0])
    image, variables = _laid_out(store, options, signers, access)
    access.scratch.close()
    if program:
        _become(program, variables)
    result = {"image": options.cache, "digest": image.digest, "store": str(store.layout.state)}
    show(result, output, lambda: line(f"{image.ref} is in {store.layout.state}"))


def check(program: Sequence[str], options: RunOptions, output: Output) -> None:
    """Refuse options of `gkm exec` that name no task or several, or that have no effect.

    Raises:
        UsageError: the options name no task or several, or have no effect.
    """
    asked = {"--prepare": options.prepare, "--list": options.listed, "--prune": options.prune}
    named = [*(name for name, is_asked in asked.items() if is_asked), *(["a program"] if program else [])]
    if not named:
        raise UsageError("there is no program", "write it behind --, or give --prepare, --list or --prune")
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other", "give one of them")
    needs_image = bool(program) or options.prepare
    if needs_image != bool(options.cache):
        why = "--cache names no image" if needs_image else f"--cache has no effect with {named[0]}"
        raise UsageError(why, "give --cache REF" if needs_image else "leave it out")
    if options.keep_gib and not options.prune:
        raise UsageError("--keep is for --prune", "leave it out")
    if program and output is not Output.TABLE:
        raise UsageError("--output has no effect with a program", "leave it out")


def _laid_out(
    store: RunStore, options: RunOptions, signers: SignerOptions, access: RegistryAccess
) -> tuple[CacheImage, dict[str, str]]:
    """Return the image, whose content is verified and laid out in the store, and the environment of the program."""
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
        store.note(image.digest, options.cache)
        path = _provided(store, image.digest, options)
    return image, environment(names, str(path)) if path else {}


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


def _provided(store: RunStore, digest: str, options: RunOptions) -> Path | None:
    """Return the path of the cache for the program; None for a copy that only a program needs."""
    if can_mount():
        return mount(store, digest, int(options.size_gib * _GIB) if options.writable else None)
    if options.writable or not can_share(store, digest):
        return None if options.prepare else private_copy(store, digest)
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
    calls.disarm()
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
