"""The image below ours: Debian with Python, made from packages. Users take one of a registry, a test must not."""

import hashlib
import tempfile
from pathlib import Path

from support.product_images.build_steps import Builder, Step

NAME = "localhost/python-base:bookworm"
DEBOOTSTRAP = (
    "debootstrap",
    "--variant=minbase",
    "--include=python3,python3-venv,ca-certificates",
    "bookworm",
)
UNUSED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale", "dev")
"""Directories whose content a base image needs not."""
CONTAINERFILE = f"""FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LABEL made-by="{" ".join(DEBOOTSTRAP)}"
"""


def key() -> str:
    """Return a name for what is in it."""
    return hashlib.sha256(f"{DEBOOTSTRAP} {UNUSED} {CONTAINERFILE}".encode()).hexdigest()[:16]


def layer(cache: Path) -> Path:
    """Return its one layer, made once; CONTAINERFILE makes the image of it.

    Raises:
        RuntimeError: it could not be made; the message holds the end of the log.
    """
    target = cache / f"base-{key()}.tar"
    if not target.exists():
        with tempfile.TemporaryDirectory(prefix=".base-", dir=cache) as name:
            directory = Path(name)
            builder = Builder(directory / "log")
            builder.run(Step("the base image (debootstrap)", [*DEBOOTSTRAP, str(directory / "root")]))
            excluded = [f"--exclude=./{path}/*" for path in UNUSED]
            made = str(directory / "base.tar")
            builder.run(Step("its layer", ["tar", "-C", str(directory / "root"), *excluded, "-cf", made, "."]))
            Path(made).rename(target)
    return target
