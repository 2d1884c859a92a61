"""The content of a built image: its sizes, and its files in a directory where a program of it can run, by chroot."""

import json
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.host.waiting import scaled

SHELLS = ("sh", "bash", "dash", "rbash")
SECONDS = scaled(180.0)


@dataclass(frozen=True)
class Layer:
    """A layer of a docker-archive, which is not compressed."""

    name: str
    size: int


def configuration(archive: Path) -> dict[str, Any]:
    """Return the configuration of the image in a docker-archive."""
    with tarfile.open(archive) as opened:
        found: dict[str, Any] = json.loads(_read(opened, _manifest(opened)["Config"]))["config"]
    return found


def layers(archive: Path) -> list[Layer]:
    """Return the layers, the base image's first."""
    with tarfile.open(archive) as opened:
        return [Layer(name, opened.getmember(name).size) for name in _manifest(opened)["Layers"]]


def beyond_base(archive: Path) -> int:
    """Return the bytes of all layers but that of the base image, which is one (support.product_images.base_image)."""
    return sum(layer.size for layer in layers(archive)[1:])


@contextmanager
def unpacked(archive: Path, directory: Path) -> Iterator[Path]:
    """Unpack all layers below `directory`, which must not exist, without any shell."""
    directory.mkdir()
    with tarfile.open(archive) as opened:
        for layer in _manifest(opened)["Layers"]:
            content = opened.extractfile(layer)
            assert content is not None
            with tarfile.open(fileobj=content) as files:
                files.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # Python 3.11.2 has none
                files.extractall(directory)  # noqa: S202 -- our own, with absolute links
    for shell in SHELLS:
        (directory / "usr" / "bin" / shell).unlink(missing_ok=True)
    yield directory


def run(root: Path, command: Sequence[str], text: str = "", user: int = 65532) -> subprocess.CompletedProcess[str]:
    """Run a program of an unpacked image as a user without rights, with its root read-only."""
    inside = ["chroot", f"--userspec={user}:{user}", str(root), *command]
    # In a mount namespace of its own, so that the read-only bind mount ends with it.
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, str(root), *inside],
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )


def _manifest(opened: tarfile.TarFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_read(opened, "manifest.json"))[0]
    return found


def _read(opened: tarfile.TarFile, name: str) -> bytes:
    content = opened.extractfile(name)
    assert content is not None
    return content.read()
