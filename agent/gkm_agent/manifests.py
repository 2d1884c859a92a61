"""Manifests of caches as text: YAML, several documents in a file, nothing else in it that we do not know."""

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml
from gkm.api.caches import Cache, GKMCache
from gkm.api.meta import API_VERSION
from gkm.hoststate.names import CacheRef, InvalidName

from gkm_agent.values import WantedCache

DEFAULT_NAMESPACE = "default"  # as kubectl
MAX_DOCUMENTS = 1000


class BadManifest(ValueError):
    """A manifest that cannot be used; the message says which document and why."""


class _Loader(yaml.SafeLoader):
    """YAML without aliases: a few lines of them can stand for gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401 -- as yaml has it
        if self.check_event(yaml.AliasEvent):
            raise BadManifest("aliases are not used in manifests")
        return super().compose_node(parent, index)


def caches_in(text: bytes) -> tuple[WantedCache, ...]:
    """Return the caches in a file.

    Raises:
        BadManifest: it is not YAML, or one of its documents is no cache.
    """
    return tuple(_wanted(document, number) for number, document in enumerate(_documents(text), 1))


def _documents(text: bytes) -> Iterator[object]:
    count = 0
    try:
        for document in yaml.load_all(text, Loader=_Loader):
            if document is not None:
                count += 1
                yield document
            if count > MAX_DOCUMENTS:
                raise BadManifest(f"more than {MAX_DOCUMENTS} documents")
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, BadManifest):
            raise
        raise BadManifest(f"not YAML: {' '.join(str(error).split())[:300]}") from error


def _wanted(document: object, number: int) -> WantedCache:
    where = f"document {number}"
    try:
        cache: Cache = msgspec.convert(document, type=Cache)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadManifest(f"{where}: {error}") from error
    if cache.api_version != API_VERSION:
        raise BadManifest(f"{where}: apiVersion is {cache.api_version[:60]!r}, not {API_VERSION}")
    namespace = (cache.metadata.namespace or DEFAULT_NAMESPACE) if isinstance(cache, GKMCache) else None
    try:
        ref = CacheRef(namespace, cache.metadata.name)
    except InvalidName as error:
        raise BadManifest(f"{where}: {error}") from error
    return WantedCache(ref, cache.spec.image)
