"""What a process says of itself by plain HTTP: /healthz, /readyz, /metrics."""

import urllib.error
import urllib.request

from support.host.waiting import scaled


def fetch(address: str, name: str) -> tuple[int, str]:
    """Return the status and the text of a page of `host:port`; (0, "") where nobody answers."""
    # Whatever proxy this machine is told to use: it does not lead to its own loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}/{name}", timeout=scaled(10)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
    except OSError:
        return 0, ""
