"""The statuses of all scopes as one value: writes the scopes that changed and removes the objects of the others."""

from collections.abc import Mapping

from gkm.api.nodes import NodeStatus

from gkm_agent.interfaces import NotWritten, StatusSink

_SHOWN_FAILURES = 3


class ScopedStatuses:
    """The Sink of {scope: status} over a StatusSink. It lists the existing objects once, before the first write."""

    def __init__(self, sink: StatusSink) -> None:
        self._sink = sink
        self._written: dict[str | None, NodeStatus | None] | None = None

    def publish(self, statuses: Mapping[str | None, NodeStatus]) -> None:
        """See Sink. A scope that fails does not stop the others."""
        if self._written is None:
            self._written = dict.fromkeys(self._sink.scopes())
        failures: list[tuple[str | None, NotWritten]] = []
        for scope, status in statuses.items():
            if self._written.get(scope) != status:
                try:
                    self._sink.publish(scope, status)
                    self._written[scope] = status
                except NotWritten as error:
                    failures.append((scope, error))
        for scope in [scope for scope in self._written if scope not in statuses]:
            try:
                self._sink.remove(scope)
                del self._written[scope]
            except NotWritten as error:
                failures.append((scope, error))
        if failures:
            raise _summary(failures)

    def invalidate(self) -> None:
        """See Sink."""
        if self._written is not None:
            self._written = dict.fromkeys(self._written)


def _summary(failures: list[tuple[str | None, NotWritten]]) -> NotWritten:
    """Return one error for all failures: an unavailable API server fails hundreds of scopes with the same message."""
    distinct = {str(error): scope for scope, error in reversed(failures)}
    shown = [f"{scope or 'cluster-wide'}: {message}" for message, scope in reversed(distinct.items())]
    more = [f"{len(shown) - _SHOWN_FAILURES} other causes"] if len(shown) > _SHOWN_FAILURES else []
    text = "; ".join(shown[:_SHOWN_FAILURES] + more)
    return NotWritten(f"{len(failures)} objects: {text}", max(error.retry_after for _, error in failures))
