"""The size limit of a node object: shortens the status of a node with many caches or pods until it fits. Pure."""

from collections.abc import Callable

import msgspec
from gkm.api.nodes import NodeCacheStatus, NodeStatus

MAX_BYTES = 384 << 10
"""Size of a status as JSON. An object in etcd has at most 1.5 MiB, and server-side apply stores the path of every field
in it, which doubles the size of short values."""

_Shorten = Callable[[NodeCacheStatus], NodeCacheStatus]


def fit_to_limit(status: NodeStatus, limit: int = MAX_BYTES) -> NodeStatus:
    """Return a status of at most `limit` bytes, shortened step by step.

    The first steps drop pods, the next ones messages; states, digests and reasons stay. The last step drops the caches
    at the end of the alphabet. The summary annotation counts the caches that stay.
    """
    for shorten in (_unchanged, _few_pods, _no_pods, _short_messages, _no_messages):
        shortened = _each(status, shorten)
        if _size(shortened) <= limit:
            return shortened
    return _first(shortened, limit)


def _unchanged(cache: NodeCacheStatus) -> NodeCacheStatus:
    return cache


def _few_pods(cache: NodeCacheStatus) -> NodeCacheStatus:
    return msgspec.structs.replace(cache, pods=cache.pods[:20])


def _no_pods(cache: NodeCacheStatus) -> NodeCacheStatus:
    return msgspec.structs.replace(cache, pods=[])


def _short_messages(cache: NodeCacheStatus) -> NodeCacheStatus:
    return _with_messages(_no_pods(cache), 160)


def _no_messages(cache: NodeCacheStatus) -> NodeCacheStatus:
    return _with_messages(_no_pods(cache), 0)


def _with_messages(cache: NodeCacheStatus, length: int) -> NodeCacheStatus:
    groups = [
        msgspec.structs.replace(group, message=group.message[:length], ids=list(group.ids))
        for group in cache.incompatible_gpus
    ]
    return msgspec.structs.replace(cache, message=cache.message[:length], incompatible_gpus=groups)


def _each(status: NodeStatus, shorten: _Shorten) -> NodeStatus:
    if shorten is _unchanged:
        return status
    return msgspec.structs.replace(status, caches={name: shorten(cache) for name, cache in status.caches.items()})


def _first(status: NodeStatus, limit: int) -> NodeStatus:
    remaining = limit - _size(msgspec.structs.replace(status, caches={}))
    caches: dict[str, NodeCacheStatus] = {}
    for name, cache in sorted(status.caches.items()):
        remaining -= len(msgspec.json.encode({name: cache})) + 1
        if remaining < 0:
            break
        caches[name] = cache
    return msgspec.structs.replace(status, caches=caches)


def _size(status: NodeStatus) -> int:
    return len(msgspec.json.encode(status))
