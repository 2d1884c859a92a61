"""The GPU flavors of all nodes, in an annotation of a ServiceAccount that no pod uses.

The policy gkm-runs-flavor refuses a Run of any other flavor (docs/design/plans.md says why it is a ServiceAccount).
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from threading import Lock

from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import SERVICE_ACCOUNTS
from gkm.topology.labels import named_flavor
from gkm.topology.nodes import Node

from gkm_operator.last_write import LastWrite
from gkm_operator.plans.write.writer import FIELD_MANAGER

_LOG = logging.getLogger(__name__)

NAME = "gkm-flavors"
ANNOTATION = "gkm.io/flavors"
MAX_FLAVORS = 1000


class FlavorCounts:
    """Counts nodes by GPU flavor, updated by changes of Nodes. Thread-safe.

    `keys` are the label keys of flavors, `also` the configured flavors whose nodes come later.
    """

    def __init__(self, keys: Sequence[str], also: Sequence[str] = ()) -> None:
        self._keys = keys
        self._also = frozenset(flavor.lower() for flavor in also)
        self._count: Counter[str] = Counter()
        self._written = LastWrite[str]()
        self._lock = Lock()

    def change(self, old: Node | None, new: Node | None) -> bool:
        """Apply a change of a Node; return whether its flavor changed."""
        before, after = self._flavor(old), self._flavor(new)
        if before == after:
            return False
        with self._lock:
            self._count[before] -= 1
            self._count[after] += 1
        return True

    def text(self) -> str:
        """Return the GPU flavors joined by commas; "" (which refuses no Run) without any or above MAX_FLAVORS."""
        with self._lock:
            found = {flavor for flavor, count in self._count.items() if flavor and count > 0}
        if not found or len(found) > MAX_FLAVORS:
            return ""
        return ",".join(sorted(found | self._also))

    def write(self, api: Api, namespace: str) -> bool:
        """Write the flavors into the ServiceAccount's annotation; return whether it is current.

        They are written if they have changed, or were written REPEAT_SECONDS ago.

        All nodes must have been listed before.

        Raises:
            NotLeading: this process must not write any more.
        """
        text = self.text()
        if self._written.is_current(text, time.monotonic()):
            return True
        metadata = {"name": NAME, "namespace": namespace, "annotations": {ANNOTATION: text}}
        value = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        try:
            api.apply(SERVICE_ACCOUNTS, value | {"automountServiceAccountToken": False}, field_manager=FIELD_MANAGER)
        except ApiError as error:
            _LOG.warning(
                "GPU flavors not written to ServiceAccount gkm-flavors, tried again", extra=fields(why=str(error))
            )
            return False
        if text != self._written.content:
            _LOG.info("GPU flavors written to ServiceAccount gkm-flavors", extra=fields(flavors=text[:400]))
        self._written.record(text, time.monotonic())
        return True

    def _flavor(self, node: Node | None) -> str:
        return "" if node is None else named_flavor(node.labels, self._keys)
