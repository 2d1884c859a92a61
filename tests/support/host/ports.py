"""TCP ports on the loopback address for programs that must know theirs before they start.

A program of ours listens on port 0, and `support.host.listening` tells what it got. `free` is for partners that cannot
(etcd, kube-apiserver, kubelet, registries, Prometheus), and for addresses that others are given first: a webhook, whose
configuration names its port, and a server that is away.
"""

import random
import socket

LOWEST, HIGHEST = 20000, 32000
"""Below Linux' ephemeral range: neither an outgoing connection nor a server on port 0 takes the port."""


def free() -> int:
    """Return a port that no other test of this machine gets while this process lives.

    Between our look and the server's bind, another worker could take the same port. So each port has a lock, a Unix
    socket with an abstract name: as the port, it belongs to the network namespace and ends with its process.
    """
    # Unseeded on purpose: test runs seed `random`, and two of them side by side would try the same ports.
    generator = random.SystemRandom()
    for _ in range(200):
        port = generator.randint(LOWEST, HIGHEST)
        if _is_free(port) and _lock(port):
            return port
    raise RuntimeError(f"no free port between {LOWEST} and {HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _lock(port: int) -> bool:
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0gkm-test-port-{port}")
    except OSError:
        lock.close()
        return False
    lock.detach()  # open until this process ends
    return True
