"""What a process says of itself by plain HTTP: /healthz, /readyz, /metrics."""

import urllib.error
import urllib.request

from support.host import listening
from support.host.processes import Process
from support.host.waiting import scaled

_OK = 200


def wait_until_ready(process: Process, *, besides: int = 0, seconds: float = 60.0) -> None:
    """Wait until /readyz of a process of ours answers that it is ready; it may listen on the port `besides` as well.

    Raises:
        ProcessFailed: it ended, or is not ready.
    """
    address = listening.address(process, besides=besides)
    process.ready(lambda: is_ready(address), "it is ready", seconds)


def leads(address: str) -> bool:
    """Return whether the controllers at this address lead, by their metrics."""
    return "gkm_leader 1.0" in fetch(address, "metrics")[1].splitlines()


def has_succeeded(address: str, *tasks: str) -> bool:
    """Return whether any of these tasks of the controllers succeeded since their start, by their metrics.

    A controller reconciles nothing before it has listed everything, so this also tells that it has.
    """
    times = {f'gkm_last_success_timestamp_seconds{{task="{task}"}}' for task in tasks}
    return any(line.rpartition(" ")[0] in times for line in fetch(address, "metrics")[1].splitlines())


def is_ready(address: str) -> bool:
    """Return whether /readyz answers that the process is ready."""
    return fetch(address, "readyz")[0] == _OK


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
