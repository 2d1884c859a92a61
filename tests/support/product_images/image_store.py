"""buildah with a store of its own in the cache directory: layers that did not change are not built again."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.product_images.build_steps import Builder, Step

LARGEST_BYTES = 8 << 30
"""A store that has grown larger is thrown away: it also keeps the layers of every source that once was."""


@dataclass(frozen=True)
class ImageStore:
    """Layers and images below `directory`; for one process at a time."""

    directory: Path
    builder: Builder

    @classmethod
    @contextmanager
    def open(cls, directory: Path, builder: Builder) -> Iterator["ImageStore"]:
        """Use the store, or make it; one that was left in the middle of something is made anew."""
        under_way = directory.with_name(f"{directory.name}.under-way")
        if under_way.exists() or _size(directory) > LARGEST_BYTES:
            shutil.rmtree(directory, ignore_errors=True)
        under_way.touch()
        yield cls(directory, builder)
        under_way.unlink()

    def build(self, name: str, context: Path, *arguments: str) -> None:
        """Build what is below `context` and call it `name`."""
        options = ["--isolation=chroot", "--network=host", "--pull=never", "--layers", f"--tag={name}"]
        self.run(name.rpartition("/")[2], "build", *options, *arguments, str(context))

    def save(self, name: str, archive: Path) -> None:
        """Write an image as a docker-archive."""
        self.run(archive.name, "push", name, f"docker-archive:{archive}:{name}")

    def run(self, what: str, *arguments: str) -> None:
        """Run buildah; `what` is what people read."""
        places: Sequence[str] = ("--root", str(self.directory / "root"), "--runroot", str(self.directory / "run"))
        # Not vfs, which every buildah can, because that copies the whole image for each step of a Dockerfile.
        self.builder.run(Step(what, ["buildah", *places, "--storage-driver", "overlay", *arguments]))


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if not path.is_dir())
