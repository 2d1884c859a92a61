"""Pull several images at once, as four workers of the agent do, under a memory limit.

Arguments: the registry, a directory for the state, the limit in MiB, references. Prints one line of JSON: the result of
each pull, and the maximum resident memory in MiB.
"""

import json
import resource
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gkm.api import msgspec_warmup
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry

MAX_BYTES = 1 << 30


def pulled(client: Registry, layout: Layout, text: str) -> str:
    ref = Reference.parse(text)
    try:
        image = cache.describe(client, ref.pinned(client.resolve(ref)))
        return f"{pull.fetch(client, image, layout, max_bytes=MAX_BYTES).files} files"
    except GKMError as error:
        return str(error.reason)


def main(host: str, state: str, limit: str, *refs: str) -> None:
    # RLIMIT_DATA counts mapped memory, including the stacks of threads: resident memory is less.
    threading.stack_size(1 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit) << 20,) * 2)
    client = Registry(Registries(hosts={host: RegistryHost(plain_http=True)}))
    layout = Layout(Path(state) / "state", Path(state) / "run")
    layout.make_directories()
    msgspec_warmup.warm_up()
    with ThreadPoolExecutor(len(refs)) as pool:
        results = list(pool.map(lambda ref: pulled(client, layout, ref), refs))
    status = Path("/proc/self/status").read_text()
    (peak,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    left = [str(path) for path in layout.work.iterdir()]
    sys.stdout.write(json.dumps({"results": results, "peak": peak >> 10, "left": left}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
