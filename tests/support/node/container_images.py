"""Container images of our own, made as docker-archives with tarfile: there is no registry to pull from."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from support.host.waiting import scaled

PAUSE = "localhost/pause:testbed"
BUSYBOX = "localhost/busybox:testbed"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class File:
    """A file of an image."""

    data: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    """A symbolic link of an image."""

    to: str


Files = Mapping[str, bytes | File | Link | Path]
"""Path inside the image to its content; a Path is a file of this machine, taken with its mode."""


def docker_archive(name: str, files: Files, *, command: Sequence[str] = ()) -> bytes:
    """Return an image of one layer, called `name` (with a tag), for `ctr images import`."""
    layer = _tar({path: _entry(content) for path, content in files.items()})
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Cmd": list(command), "Env": ["PATH=/bin:/usr/bin:/sbin:/usr/sbin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "config.json": File(json.dumps(config).encode()),
            "layer.tar": File(layer),
            "manifest.json": File(json.dumps(manifest).encode()),
        }
    )


def pause() -> bytes:
    """Return the image that holds a pod's namespaces: a process that only waits."""
    return docker_archive(PAUSE, {"bin/busybox": _busybox()}, command=["/bin/busybox", "sleep", "2147483647"])


def busybox() -> bytes:
    """Return a shell with all applets, /tmp and a passwd of root and nobody."""
    program = _busybox()
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True, timeout=scaled(10))
    files: dict[str, bytes | File | Link | Path] = {"bin/busybox": program}
    files |= {f"bin/{applet}": Link("busybox") for applet in applets.stdout.split() if applet != "busybox"}
    files["etc/passwd"] = b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
    files["tmp/.keep"] = b""
    return docker_archive(BUSYBOX, files, command=["/bin/sh"])


def _busybox() -> Path:
    # Debian's busybox-static; a dynamic one would need its libraries in the image.
    return Path("/bin/busybox")


def _entry(content: bytes | File | Link | Path) -> File | Link:
    if isinstance(content, Path):
        return File(content.read_bytes(), content.stat().st_mode & 0o777)
    return File(content) if isinstance(content, bytes) else content


def _tar(entries: Mapping[str, File | Link]) -> bytes:
    """Return a tar whose bytes depend on nothing but `entries`."""
    output = io.BytesIO()
    directories: set[PurePosixPath] = set()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in sorted(entries.items()):
            for parent in reversed(PurePosixPath(path).parents[:-1]):
                if parent not in directories:
                    directories.add(parent)
                    archive.addfile(_member(str(parent), tarfile.DIRTYPE, 0o1777 if str(parent) == "tmp" else 0o755))
            if isinstance(entry, Link):
                member = _member(path, tarfile.SYMTYPE, 0o777)
                member.linkname = entry.to
                archive.addfile(member)
            else:
                member = _member(path, tarfile.REGTYPE, entry.mode)
                member.size = len(entry.data)
                archive.addfile(member, io.BytesIO(entry.data))
    return output.getvalue()


def _member(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type, member.mode = kind, mode
    return member
