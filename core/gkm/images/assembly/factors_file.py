"""Remove secrets from cache_key_factors.json, into which vLLM writes every environment variable that it knows.

vLLM never reads the file, so the image may contain a changed one. A variable with KEY, TOKEN, SECRET or PASSWORD in its
name is left out of manifest.json unless it is null. In the file itself it becomes null if it is a text: numbers are
settings of vLLM (VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE). A file without secrets stays the same, byte for byte. A file that
cannot be read may hold secrets, such as one of a vLLM that was killed while it wrote: the image has `{}` in its place.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gkm.images.assembly.tree import TreeEntry
from gkm.runtimes.vllm import FACTORS, SECRET_VARIABLE, is_secret

MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class RedactedFile:
    """A rewritten cache_key_factors.json, and the names of the environment variables that are null in it."""

    data: bytes
    names: tuple[str, ...]


def is_factors(entry: TreeEntry) -> bool:
    """Return whether a file is vLLM's cache_key_factors.json and not too large to read."""
    return not entry.directory and entry.name == FACTORS and entry.size <= MAX_BYTES


def redact(entry: TreeEntry) -> RedactedFile | None:
    """Return vLLM's factors file without secrets; None if it has no secrets, or for another file.

    A file of more than MAX_BYTES is not read.

    Raises:
        GKMError: CONTENT_MISMATCH when it changed while it was read.
        OSError: it cannot be read.
    """
    if entry.directory or entry.name != FACTORS:
        return None
    return without_secrets(entry.read() if entry.size <= MAX_BYTES else b"")


def without_secrets(data: bytes) -> RedactedFile | None:
    """Return a JSON text without secrets, `{}` for a text that is no JSON; None if it contains no secrets."""
    names: set[str] = set()

    def cleaned(pairs: list[tuple[str, object]]) -> dict[str, object]:
        # The hook sees every pair, also a pair that a later pair of the same name hides.
        names.update(name for name, value in pairs if _is_secret(name, value))
        return {name: None if _is_secret(name, value) else value for name, value in pairs}

    try:
        value = json.loads(data, object_pairs_hook=cleaned)
        return RedactedFile(json.dumps(value, indent=2).encode(), tuple(sorted(names))) if names else None
    except (ValueError, RecursionError):
        return RedactedFile(b"{}", ())


def public(env: Mapping[str, object]) -> dict[str, object]:
    """Return the environment variables that manifest.json may contain: secret ones only if they are null."""
    return {name: _public(value) for name, value in env.items() if value is None or not SECRET_VARIABLE.search(name)}


def _public(value: object) -> object:
    if isinstance(value, dict):
        return public(value)
    return [_public(item) for item in value] if isinstance(value, list) else value


def _is_secret(name: str, value: object) -> bool:
    return bool(value) and is_secret(name, value)
