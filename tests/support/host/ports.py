"""Free TCP ports on the loopback address."""

import random
import socket

LOWEST, HIGHEST = 20000, 32000
"""Below Linux' ephemeral range: no outgoing connection takes the port between our look and the server's bind."""


def free() -> int:
    """Return a port that was free a moment ago."""
    # Unseeded on purpose: test runs seed `random`, and two of them side by side must not choose the same ports.
    generator = random.SystemRandom()
    for _ in range(200):
        port = generator.randint(LOWEST, HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {LOWEST} and {HIGHEST}")
