"""Caches that a container sees at one path: their files that name paths are rewritten for it before they are packed."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gkm.hoststate.files import closing
from gkm.images.assembly.contents import CacheContents
from gkm.images.assembly.replacements import with_rewritten
from gkm.images.assembly.several import ScannedCaches
from gkm.mounts.relocation import tree_writer
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath
from gkm.mounts.relocation.tree_writer import Unrelocatable
from gkm.runtimes.placement import beneath, directory_of

from gkm_cli.output import CommandFailed, UsageError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def mount_path_of(option: str, text: str) -> MountPath | None:
    """Return the mount path that is the value of an option, None for "".

    Raises:
        UsageError: no cache can be mounted there.
    """
    try:
        return MountPath(text) if text else None
    except InvalidMountPath as error:
        raise UsageError(f"{option}: {error}", "name the path where containers see the cache") from error


def rewritten(scanned: ScannedCaches, path: MountPath, work: Path) -> ScannedCaches:
    """Return the caches as a container needs them that sees them at `path`; `work` must exist until they are packed.

    Raises:
        CommandFailed: a cache has more files than can be rewritten, or files of other kinds.
        OSError: a cache cannot be read, or `work` cannot be written.
    """
    names = [cache.format.value for cache in scanned.caches]
    return replace(scanned, caches=[_rewritten(cache, names, path, work) for cache in scanned.caches])


def _rewritten(cache: CacheContents, names: Sequence[str], path: MountPath, work: Path) -> CacheContents:
    place = directory_of(cache.format.value, names)
    tree = work / f"{cache.format.value}-rewritten"
    try:
        with closing(os.open(cache.directory, _DIRECTORY)) as content:
            tree_writer.write(content, tree, MountPath(beneath(path.text, place)))
    except (Unrelocatable, InvalidMountPath) as error:
        raise CommandFailed(f"{cache.directory} cannot be built for {path.text}: {error}") from error
    return with_rewritten(cache, tree)
