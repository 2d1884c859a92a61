"""The API of a controller, on any other API: as gkm.kube.client refuses the writes of a process that does not lead."""

from collections.abc import Callable
from typing import Any

from gkm.kube.api import Api
from gkm.kube.elector import NotLeading
from support.kube.interposed_api import Call, InterposedApi


def leading(api: Api, leads: Callable[[], bool]) -> Api:
    """Return an API whose writes raise NotLeading unless `leads` returns True."""

    def around(call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        if call.writes and not leads():
            raise NotLeading("this process no longer holds the lease: another process may lead")
        return send()

    return InterposedApi(api, around)
