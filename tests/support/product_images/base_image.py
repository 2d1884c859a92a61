"""The image below ours: Debian with Python, made from packages. Users take one of a registry, a test must not."""

import hashlib
import tempfile
from pathlib import Path

from support.product_images.build_steps import Builder, Step

SUITE = "bookworm"
UNUSED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale", "dev")
"""Directories whose content a base image needs not."""


def name(architecture: str = "") -> str:
    """Return the name of the image; an architecture, such as arm64, is another one than this machine's."""
    return f"localhost/python-base:{SUITE}{_suffix(architecture)}"


def debootstrap(architecture: str = "") -> list[str]:
    """Return the command that makes the root file system, but for its directory."""
    chosen = [f"--arch={architecture}"] if architecture else []
    return ["debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", *chosen, SUITE]


def containerfile(architecture: str = "") -> str:
    """Return how the image is made of its layer."""
    return f"""FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LABEL made-by="{" ".join(debootstrap(architecture))}"
"""


def key(architecture: str = "") -> str:
    """Return a name for what is in it."""
    return hashlib.sha256(
        f"{tuple(debootstrap(architecture))} {UNUSED} {containerfile(architecture)}".encode()
    ).hexdigest()[:16]


def layer(cache: Path, architecture: str = "") -> Path:
    """Return its one layer, made once; `containerfile` makes the image of it.

    For another architecture than this machine's, `support.arm64.programs.enable` comes first.

    Raises:
        RuntimeError: it could not be made; the message holds the end of the log.
    """
    target = cache / f"base{_suffix(architecture)}-{key(architecture)}.tar"
    if not target.exists():
        with tempfile.TemporaryDirectory(prefix=".base-", dir=cache) as made:
            directory = Path(made)
            builder = Builder(directory / "log")
            command = [*debootstrap(architecture), str(directory / "root")]
            builder.run(Step("the base image (debootstrap)", command))
            excluded = [f"--exclude=./{path}/*" for path in UNUSED]
            packed = directory / "base.tar"
            builder.run(Step("its layer", ["tar", "-C", str(directory / "root"), *excluded, "-cf", str(packed), "."]))
            packed.rename(target)
    return target


def _suffix(architecture: str) -> str:
    return f"-{architecture}" if architecture else ""
