"""What the tree is written to: HyperNodes, the Topologies of Kueue and KAI, labels of nodes.

Each sink waits for its kind, and reports why it is not up to date. None stops another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gkm.api.features import Feature, install
from gkm.api.topology_status import TopologyReason
from gkm.kube.api import Api
from gkm.kube.discovery import is_served
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.resources import Resource
from gkm.kube.workqueue import Retry

from gkm_operator.hypernodes.findings import Blocked, PartFinding

_FORBIDDEN = 403
_MISSING = frozenset({TopologyReason.KIND_MISSING, TopologyReason.RIGHTS_MISSING})


@dataclass(slots=True)
class TreeSink:
    """`write` gets the kind that is `served`, writes what differs, raises ApiError, Retry or Blocked.

    The kind is the first of `kinds` that the API server has; without any the sink needs none. `install` brings it.
    """

    name: str
    condition: str
    write: Callable[[Any], object]
    kinds: Sequence[Resource[Any]] = ()
    install: str = ""
    served: Resource[Any] | None = None
    finding: PartFinding = field(init=False)

    def __post_init__(self) -> None:
        self._set(TopologyReason.NOT_CHECKED, "the controllers have not checked the API server yet")

    @property
    def available(self) -> bool:
        """Return whether the sink can be written."""
        return self.served is not None or not self.kinds

    def check(self, api: Api) -> bool:
        """Look whether the kind is there; return False if the API server does not answer that."""
        if not self.kinds:
            return True
        try:
            self.served = next((kind for kind in self.kinds if is_served(api, kind)), None)
        except ApiError as error:
            # What was there is written all the same: that shows whether it still is.
            if error.status != _FORBIDDEN:
                self._fail(error)
                return False
            self.served = None
            self._set(TopologyReason.RIGHTS_MISSING, f"{error.message}: {install(Feature.TOPOLOGY)}")
        else:
            if self.served is None:
                kind = f"{self.kinds[0].plural}.{self.kinds[0].api_version.partition('/')[0]}"
                self._set(TopologyReason.KIND_MISSING, f"the API server has no {kind}: install {self.install}")
            elif self.finding.reason in _MISSING:
                self._set(TopologyReason.NOT_CHECKED, "the kind is there, and has not been compared yet")
        return True

    def reconcile(self) -> float | None:
        """Write, and record the result; return the seconds until it can be done, None if that is not known.

        Raises:
            ApiError, Retry: another attempt may succeed. No message has content of an object.
        """
        if not self.available:
            return None
        try:
            self.write(self.served)
        except Blocked as blocked:
            self._set(blocked.reason, str(blocked), blocked.detail)
            return blocked.after
        except ApiError as error:
            raise self._fail(error) from error
        except Retry as error:
            self._set(TopologyReason.WRITING, str(error))
            raise
        self._set(TopologyReason.UP_TO_DATE)
        return None

    def _fail(self, error: ApiError) -> ApiError:
        """Record an error; return it for the log, without its message, which can have names of objects."""
        reason = TopologyReason.RIGHTS_MISSING if error.status == _FORBIDDEN else TopologyReason.WRITE_FAILED
        message = "the API server does not respond" if error.status == NO_RESPONSE else "the API server refuses it"
        self._set(reason, f"{message} ({error.reason or error.status})", error.message)
        return ApiError(
            error.status, error.reason, f"{self.condition} in gkm-topology has the cause", error.retry_after
        )

    def _set(self, reason: TopologyReason, message: str = "", detail: str = "") -> None:
        self.finding = PartFinding(self.condition, reason, message, detail)
