"""Certificates of the webhook in files, issued for a test."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gkm_operator.admission.certificates import AUTHORITY, CERTIFICATE, KEY, make, write


@dataclass(frozen=True, slots=True)
class IssuedFiles:
    """The paths of the files, and the CA that a client must trust."""

    certificate: Path
    key: Path
    authority: Path
    ca_bundle: bytes


def issue(directory: Path, names: Sequence[str]) -> IssuedFiles:
    """Issue a pair that is valid from now on, and write it."""
    pair = make(names, datetime.now(UTC))
    write(directory, pair)
    return IssuedFiles(directory / CERTIFICATE, directory / KEY, directory / AUTHORITY, pair.authority)
