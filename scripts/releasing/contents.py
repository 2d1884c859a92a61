"""What is installed in an image: distributions of Python below /opt/gkm, and Debian's packages of the base image."""

import re
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import PurePosixPath

from releasing.layout import Image

OWN = "gkm"
_STATUS = "var/lib/dpkg/status"
_NOT_A_NAME = re.compile(r"[-_.]+")


class NotLocked(ValueError):
    """An image has what its lock does not."""


@dataclass(frozen=True, order=True)
class Distribution:
    """An installed distribution of Python; `license` is what its author declared, often no SPDX expression."""

    name: str
    version: str
    license: str = ""


@dataclass(frozen=True, order=True)
class DebianPackage:
    """An installed package of Debian."""

    name: str
    version: str
    architecture: str


def installed(image: Image) -> tuple[list[Distribution], list[DebianPackage]]:
    """Return what an image holds, sorted."""
    distributions: dict[str, Distribution] = {}
    packages: list[DebianPackage] = []
    for path, content in image.files(_wanted):
        text = content.decode("utf-8", "replace")
        if path == _STATUS:
            packages = debian_packages(text)
        else:
            distributions[path] = distribution(text)
    return sorted(distributions.values()), sorted(packages)


def _wanted(path: str) -> bool:
    return path == _STATUS or (path.startswith("opt/gkm/") and PurePosixPath(path).match("*.dist-info/METADATA"))


def distribution(metadata: str) -> Distribution:
    """Return what a METADATA file describes (core metadata 2.4)."""
    headers = HeaderParser().parsestr(metadata)
    return Distribution(normal(headers["Name"]), headers["Version"], headers.get("License-Expression", ""))


def debian_packages(status: str) -> list[DebianPackage]:
    """Return the installed packages of dpkg's status file."""
    found = []
    for paragraph in status.split("\n\n"):
        fields = HeaderParser().parsestr(paragraph.strip())
        if fields.get("Status", "").endswith(" installed"):
            found.append(DebianPackage(fields["Package"], fields["Version"], fields["Architecture"]))
    return found


def normal(name: str) -> str:
    """Return the normal form of a distribution's name."""
    return _NOT_A_NAME.sub("-", name).lower()


def locked(text: str) -> frozenset[tuple[str, str]]:
    """Return names and versions of a lock; a name has several versions where Pythons differ."""
    return frozenset((normal(name), version) for name, version in re.findall(r"(?m)^([\w.-]+)==([\w.+!]+)", text))


def check_locked(found: list[Distribution], lock: frozenset[tuple[str, str]], version: str) -> None:
    """Check that an image holds nothing but our wheel of `version` and what the lock names, in its version.

    Raises:
        NotLocked: it holds something else.
    """
    wrong = [each for each in found if (each.name, each.version) not in lock | {(OWN, version)}]
    if wrong:
        raise NotLocked(f"installed and not locked: {', '.join(f'{each.name} {each.version}' for each in wrong)}")
    if not any(each.name == OWN for each in found):
        raise NotLocked("our own wheel is not installed")
