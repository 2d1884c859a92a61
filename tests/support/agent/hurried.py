"""`gkm-agent` with shorter waits than it ships with: `python hurried.py ARGUMENTS`.

For tests whose statement holds for any length of them.
"""

from functools import partial
from unittest.mock import patch

from gkm.kube import client, credentials
from gkm_agent import main as agent
from gkm_agent.reconcile import reconciler

READ_SECONDS = 4.0
"""For the answer to a request, of a server that may be mute."""
RELOAD_SECONDS = 1.0
"""Between two loads of credentials that the server refuses."""
RECONCILE_SECONDS = 1.0
"""Until the agent looks at what the CSI driver recorded."""


def main() -> None:
    with (
        patch.object(client, "connect", partial(client.connect, timeout=READ_SECONDS)),
        patch.object(credentials, "RELOAD_SECONDS", RELOAD_SECONDS),
        patch.object(reconciler, "RECONCILE_SECONDS", RECONCILE_SECONDS),
    ):
        agent.main()


if __name__ == "__main__":
    main()
