"""A measured process that watches the fleet and sums it up: `python fleet_watcher.py thin|official …`.

thin: the product's own reflector, types and sums, and nothing else of the operator. official: the smallest loop with
the official client that does the same. Both make the file of the last argument when they have listed everything, and on
SIGTERM write their result: the sums, and the time (monotonic nanoseconds) of each resourceVersion.
"""

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path

from fleet_sums import Digests, WatchResult


class Ended(Exception):
    """SIGTERM came."""


def thin(kubeconfig: str, namespace: str, digests: Digests, answer: WatchResult) -> None:
    """Watch with gkm.kube.reflector, and sum up with gkm_operator.caches.fleet."""
    from fleet_timed import Timed
    from gkm.api import msgspec_warmup
    from gkm_operator.caches.fleet import NodeWatcher
    from gkm_operator.caches.totals import CacheKey

    msgspec_warmup.warm_up()
    aggregation = NodeWatcher(Timed.api(kubeconfig, answer.take), lambda _key: None)
    for reflector in aggregation.reflectors:
        reflector.start()
    for reflector in aggregation.reflectors:
        reflector.synced.wait()
    answer.synced()
    try:
        signal.pause()
    finally:
        for name, digest in digests.items():
            found = aggregation.fleet.summary(CacheKey(namespace, name), digest)
            answer.sums[name] = [found.total, found.ready, found.failed]


def official(kubeconfig: str, namespace: str, digests: Digests, answer: WatchResult) -> None:
    """Watch with kubernetes.watch.Watch, after a list in pages."""
    from fleet_official import Loop
    from kubernetes import config

    config.load_kube_config(kubeconfig)  # type: ignore[no-untyped-call]
    loop = Loop(namespace, digests)
    version = loop.listed()
    answer.synced()
    try:
        loop.watch(version, answer.take)
    finally:
        answer.sums |= loop.sums()


def main() -> int:
    """Run until SIGTERM."""
    how, kubeconfig, namespace, digests, output, listed = sys.argv[1:]

    def end(*_: object) -> None:
        raise Ended

    signal.signal(signal.SIGTERM, end)
    answer = WatchResult(Path(listed))
    watch = {"thin": thin, "official": official}[how]
    with suppress(Ended):
        watch(kubeconfig, namespace, json.loads(Path(digests).read_text()), answer)
    Path(output).write_text(json.dumps({"sums": answer.sums, "seen": answer.seen}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
