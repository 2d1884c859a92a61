"""Packages of Debian for arm64, with all that they depend on, fetched by this machine's apt without a change of it."""

from collections.abc import Sequence
from pathlib import Path

from support.product_images.build_steps import Builder, Step

MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def fetch(packages: Sequence[str], suite: str, directory: Path, builder: Builder) -> list[Path]:
    """Return the files of packages of a suite, below `directory`, which must not exist.

    Raises:
        RuntimeError: apt failed; the message holds the end of its log.
    """
    for name in ("lists/partial", "cache/archives/partial"):
        (directory / name).mkdir(parents=True)
    (directory / "status").touch()
    (directory / "sources").write_text(f"deb [arch=arm64 signed-by={KEYRING}] {MIRROR} {suite} main\n")
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State": directory,
        "Dir::State::status": directory / "status",
        "Dir::Cache": directory / "cache",
        "Dir::Etc::sourcelist": directory / "sources",
        "Dir::Etc::sourceparts": "-",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    builder.run(Step(f"the list of {suite}'s packages for arm64", [*apt, "update"]))
    install = ["install", "--yes", "--no-install-recommends", "--download-only", *packages]
    builder.run(Step(f"{packages[0]} and others for arm64 (download)", [*apt, *install]))
    return sorted((directory / "cache" / "archives").glob("*.deb"))
