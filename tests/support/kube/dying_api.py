"""The API as a process sees it that dies at one of its writes."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from gkm.kube.api import Api
from support.kube.interposed_api import Call, InterposedApi, Killed


class DyingApi(InterposedApi):
    """The process dies at its write of a number, from 1, `before` or after the API server has it.

    With `plural`, only writes of this kind have numbers.
    """

    def __init__(self, api: Api, number: int, *, before: bool, plural: str = "") -> None:
        super().__init__(api, self._count)
        self.writes = 0
        self._number = number
        self._before = before
        self._plural = plural
        self._lock = Lock()

    @property
    def dead(self) -> bool:
        return self.writes >= self._number

    def _count(self, call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        if not call.writes:
            return send()
        if self.dead:
            raise Killed
        if self._plural not in ("", call.plural):
            return send()
        with self._lock:
            if self.dead:
                raise Killed
            self.writes += 1
            if self.writes < self._number or not self._before:
                answer = send()
            if self.dead:
                raise Killed
            return answer
