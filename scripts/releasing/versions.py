"""The version of a release: pyproject.toml states it, CHANGELOG.md has a section of it, everything else follows."""

import re
import tomllib
from pathlib import Path

UNRELEASED = "Unreleased"
_VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_LINE = re.compile(r'(?m)^version = "[^"]*"$')


class WrongVersion(ValueError):
    """A version cannot be released; the message says what to do."""


def check(version: str) -> str:
    """Return a version of three numbers: what Helm (semantic versioning) and pip (PEP 440) write in the same way.

    Raises:
        WrongVersion: it is none.
    """
    if not _VERSION.fullmatch(version):
        raise WrongVersion(f"{version!r} is no version such as 1.2.3: VERSION=1.2.3, or the tag v1.2.3 in TAG")
    return version


def current(root: Path) -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def state(root: Path, version: str, date: str) -> None:
    """Write a version into pyproject.toml, and name the unreleased section of CHANGELOG.md by it.

    Raises:
        WrongVersion: it is none.
    """
    check(version)
    project, log = root / "pyproject.toml", root / "CHANGELOG.md"
    text, changes = project.read_text(encoding="utf-8"), log.read_text(encoding="utf-8")
    project.write_text(_LINE.sub(f'version = "{version}"', text, count=1), encoding="utf-8")
    if not _sections(changes).get(version):
        heading = f"## {UNRELEASED}\n\n## {version} - {date}\n"
        log.write_text(re.sub(rf"(?m)^## {UNRELEASED}\n", lambda _: heading, changes, count=1), encoding="utf-8")


def entry(root: Path, version: str) -> str:
    """Return what CHANGELOG.md has about a version.

    Raises:
        WrongVersion: pyproject.toml states another version, or there is no entry.
    """
    if (stated := current(root)) != check(version):
        raise WrongVersion(f"pyproject.toml states {stated}: run 'make version VERSION={version}', and commit")
    found = _sections((root / "CHANGELOG.md").read_text(encoding="utf-8")).get(version, "").strip()
    if not found:
        raise WrongVersion(
            f"CHANGELOG.md has nothing about {version}: run 'make version VERSION={version}', and commit"
        )
    return found + "\n"


def _sections(changes: str) -> dict[str, str]:
    """Return version to text; the heading may have a date."""
    parts = re.split(r"(?m)^## +(\S+).*\n", changes)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
