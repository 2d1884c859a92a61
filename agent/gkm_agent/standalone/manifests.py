"""A parser for manifests: caches and the Secrets that they name, in YAML with several documents."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from gkm.api import documents
from gkm.api.caches import Cache, GKMCache
from gkm.api.meta import API_VERSION, ObjectMeta
from gkm.hoststate.names import CacheRef, InvalidName
from msgspec import Struct

from gkm_agent.caches.model import WantedCache, pull_secrets

DEFAULT_NAMESPACE = "default"  # as kubectl
MAX_DOCUMENTS = 1000


class BadManifest(ValueError):
    """An invalid manifest; the message names the document and the cause."""


class _SecretData(Struct, rename="camel"):
    """A Secret as `kubectl get secret -o yaml` prints it, or with plain text in `stringData`."""

    metadata: ObjectMeta
    data: dict[str, str] = msgspec.field(default_factory=dict)
    string_data: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifests:
    """The content of a file: caches, and the data of Secrets (base64) by namespace and name, never logged."""

    caches: tuple[WantedCache, ...] = ()
    secrets: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict, repr=False)


def manifests_in(text: bytes) -> Manifests:
    """Return the content of a file.

    Raises:
        BadManifest: the text is not YAML, or a document is neither a cache nor a Secret.
    """
    caches: list[WantedCache] = []
    secrets: dict[tuple[str, str], dict[str, str]] = {}
    for number, document in enumerate(_documents(text), 1):
        if isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == ("v1", "Secret"):
            secrets |= _secret(document, number)
        else:
            caches.append(_wanted(document, number))
    return Manifests(tuple(caches), secrets)


def _documents(text: bytes) -> Iterator[object]:
    try:
        found = (document for document in documents.decode_all(text) if document is not None)
        for number, document in enumerate(found, 1):
            if number > MAX_DOCUMENTS:
                raise BadManifest(f"more than {MAX_DOCUMENTS} documents")
            yield document
    except documents.InvalidYAML as error:
        raise BadManifest(f"not YAML: {error}") from error


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
    return WantedCache(ref, cache.spec.image, pull_secrets=pull_secrets(cache))


def _secret(document: object, number: int) -> dict[tuple[str, str], dict[str, str]]:
    try:
        secret = msgspec.convert(document, type=_SecretData)
    except (msgspec.ValidationError, RecursionError) as error:
        # The error names the type and path of a wrong value, not the value.
        raise BadManifest(f"document {number}: invalid Secret: {error}") from error
    plain = {key: base64.b64encode(text.encode()).decode() for key, text in secret.string_data.items()}
    return {(secret.metadata.namespace or DEFAULT_NAMESPACE, secret.metadata.name): secret.data | plain}
