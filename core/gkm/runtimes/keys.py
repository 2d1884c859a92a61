"""The factors of the key of a cache entry, and the first factor in which two keys differ. Pure.

A runtime looks an entry up by the digest of its factors, so one different factor is a miss. The runtimes write factors
beside their entries: metadata of a kernel, a file of factors, or lines in a graph. Files of a pod are hostile: values
are compared as digests, and a text that is printed is short and printable.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_FACTORS: Final = 1_000
"""Limit of factors of one key, at 300 bytes each: vLLM 0.33 has about 280, a graph of TorchInductor about 500."""
MAX_TEXT: Final = 200
_MAX_NAME: Final = 80
_MAX_SHOWN: Final = 48


class MissReason(StrEnum):
    """Why a cache did not have an entry; if several factors differ, the first in this order is the reason."""

    NO_SUCH_KERNEL = "NoSuchKernel"
    OTHER_GPU = "OtherGPU"
    OTHER_VERSION = "OtherVersion"
    OTHER_COMPILER = "OtherCompiler"
    OTHER_ENVIRONMENT = "OtherEnvironment"
    OTHER_OPTIONS = "OtherOptions"
    OTHER_CONFIGURATION = "OtherConfiguration"
    OTHER_SOURCE = "OtherSource"
    OTHER_PATH = "OtherPath"
    UNKNOWN = "Unknown"


_ORDER: Final = {reason: number for number, reason in enumerate(MissReason)}


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a cache entry's key: the reason of a miss if it differs, its value, and the part for people."""

    reason: MissReason
    value: str
    shown: str = ""


Key = Mapping[str, Factor]
"""The factors of an entry's key by name, as far as the runtime writes them down."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A factor that differs between two cache entries' keys; `text` is for people, "" if only the reason is known."""

    reason: MissReason
    text: str = ""


@dataclass(frozen=True, slots=True)
class Entries:
    """How to find a runtime's cache entries and the files that state their keys, by patterns over whole paths.

    Both patterns match whole paths. The group `entry` of `path` is the part that is one entry. Key files whose groups
    `kind` are equal are compared. A file of an entry states its own key, or else a key file with the same group `home`
    states the key of all entries there.
    """

    path: re.Pattern[str]
    key_file: re.Pattern[str]
    read: Callable[[bytes], Key | None]
    max_bytes: int
    """Limit of bytes of a key file. If `may_truncate`, this part of a longer file is read, else the file is ignored."""
    equal: MissReason
    """The reason of a miss for an entry whose stated factors are all equal."""
    unstated: str
    """Parts of the key that no pod manifest states."""
    may_truncate: bool = False
    environment: Callable[[bytes], Mapping[str, object]] | None = None
    """Returns the environment variables in a key file; None if key files state no variables."""
    key_variables: frozenset[str] = frozenset()
    """Environment variables that a key file states only if they are set."""
    by_content: bool = False
    """Whether a file is an entry only if it states a key."""

    @property
    def is_shared(self) -> bool:
        """Return whether one key file states the key of all entries in a directory."""
        return self.path != self.key_file


_NONE: Final = re.compile(r"(?!)")
UNTOLD: Final = Entries(
    _NONE, _NONE, lambda _: None, 0, MissReason.UNKNOWN, "GKM does not know what this runtime keys its entries on"
)
"""The description for a runtime whose misses GKM cannot detect."""


def digest(value: object) -> str:
    """Return the SHA-256 of a JSON value in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def closest(compiled: Key, mounted: Iterable[Key]) -> list[Difference] | None:
    """Return the differences of a compiled entry's key from the most similar key of the cache, the first one first.

    None if the cache has no key.
    """
    found = [_differences(compiled, each) for each in mounted]
    return min(found, key=lambda each: (len(each), [_ORDER[one.reason] for one in each]), default=None)


def _differences(compiled: Key, mounted: Key) -> list[Difference]:
    names = [name for name in compiled.keys() | mounted.keys() if _value(compiled, name) != _value(mounted, name)]
    named = [((compiled.get(name) or mounted[name]).reason, name) for name in names]
    ordered = sorted(named, key=lambda each: (_ORDER[each[0]], each[1]))
    return [Difference(reason, _text(name, compiled.get(name), mounted.get(name))) for reason, name in ordered]


def _value(key: Key, name: str) -> str | None:
    factor = key.get(name)
    return factor.value if factor else None


def _text(name: str, compiled: Factor | None, mounted: Factor | None) -> str:
    shown = [printable(each.shown, _MAX_SHOWN) if each else "none" for each in (mounted, compiled)]
    name = printable(name, _MAX_NAME)
    # Two texts that look equal after truncation are no help.
    if all(shown) and shown[0] != shown[1]:
        return f"{name}: the cache has {shown[0]}, the pod has {shown[1]}"
    return f"{name} differs"


def printable(text: str, length: int = MAX_TEXT) -> str:
    """Return the printable characters of an untrusted text, at most `length` characters."""
    return "".join(each for each in text[: 4 * length] if each.isprintable())[:length]


def same_value(stated: object, text: str) -> bool | None:
    """Return whether an environment variable with this text equals the value in a key file; None if that is not known.

    Runtimes read variables as truth values, numbers, or texts of which some ignore case and resolve paths.
    """
    truth = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    wanted = truth.get(str(stated).lower()) if isinstance(stated, bool | str) else None
    if wanted is not None:
        given = truth.get(text.lower())
        return None if given is None else given == wanted
    if isinstance(stated, int | float):
        try:
            return float(text) == stated
        except ValueError:
            return None
    if isinstance(stated, str) and text.lower() != stated.lower():
        return None if "/" in text else False
    return True if stated == text else False if stated is None and text else None
