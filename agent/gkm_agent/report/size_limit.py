"""A node object that the API takes: what it says, shortened where a node has very much to say. Pure."""

from collections.abc import Callable

import msgspec
from gkm.api.nodes import NodeCacheStatus, NodeStatus

MAX_BYTES = 384 << 10
"""Of a status as JSON. An object has at most 1.5 MiB in etcd, and server-side apply keeps the path of every field in
it: as much again for short values."""

_Shorten = Callable[[NodeCacheStatus], NodeCacheStatus]


def fit_to_limit(status: NodeStatus, limit: int = MAX_BYTES) -> NodeStatus:
    """Return a status of at most `limit` bytes: as it is, or step by step with less that other objects say too.

    States, digests and reasons go last: first the pods, then the sentences. Of a scope with thousands of caches the
    last in the alphabet are left out; the annotation that sums up counts what is shown.
    """
    for shorten in (_as_it_is, _few_pods, _no_pods, _short_messages, _no_messages):
        shortened = _each(status, shorten)
        if _size(shortened) <= limit:
            return shortened
    return _first(shortened, limit)


def _as_it_is(cache: NodeCacheStatus) -> NodeCacheStatus:
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
    if shorten is _as_it_is:
        return status
    return msgspec.structs.replace(status, caches={name: shorten(cache) for name, cache in status.caches.items()})


def _first(status: NodeStatus, limit: int) -> NodeStatus:
    left = limit - _size(msgspec.structs.replace(status, caches={}))
    kept: dict[str, NodeCacheStatus] = {}
    for name, cache in sorted(status.caches.items()):
        left -= len(msgspec.json.encode({name: cache})) + 1
        if left < 0:
            break
        kept[name] = cache
    return msgspec.structs.replace(status, caches=kept)


def _size(status: NodeStatus) -> int:
    return len(msgspec.json.encode(status))
