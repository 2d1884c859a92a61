"""The size limit of a node object: shortens the status of a node with many caches or pods until it fits. Pure."""

import msgspec
from gkm.api.nodes import NodeCacheStatus, NodeStatus
from msgspec.structs import replace

MAX_BYTES = 384 << 10
"""Size of a status as JSON. An object in etcd has at most 1.5 MiB, and server-side apply stores the path of every field
in it, which doubles the size of short values."""

_STEPS = ((None, None), (20, None), (0, None), (0, 160), (0, 0))
"""The most pods of a cache and the most characters of a message in each step; None is no limit."""


def fit_to_limit(status: NodeStatus, limit: int = MAX_BYTES) -> NodeStatus:
    """Return a status of at most `limit` bytes, shortened step by step.

    The first steps drop pods, the next ones messages; states, digests and reasons stay. The last step drops the caches
    at the end of the alphabet. The summary annotation counts the caches that stay.
    """
    for pods, characters in _STEPS:
        caches = {name: _shortened(cache, pods, characters) for name, cache in status.caches.items()}
        shortened = replace(status, caches=caches)
        if _size(shortened) <= limit:
            return shortened
    return _first(shortened, limit)


def _shortened(cache: NodeCacheStatus, pods: int | None, characters: int | None) -> NodeCacheStatus:
    groups = [replace(group, message=group.message[:characters]) for group in cache.incompatible_gpus]
    return replace(cache, pods=cache.pods[:pods], message=cache.message[:characters], incompatible_gpus=groups)


def _first(status: NodeStatus, limit: int) -> NodeStatus:
    remaining = limit - _size(replace(status, caches={}))
    caches: dict[str, NodeCacheStatus] = {}
    for name, cache in sorted(status.caches.items()):
        remaining -= len(msgspec.json.encode({name: cache})) + 1
        if remaining < 0:
            break
        caches[name] = cache
    return replace(status, caches=caches)


def _size(status: NodeStatus) -> int:
    return len(msgspec.json.encode(status))
