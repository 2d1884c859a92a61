"""List what a process watches at once, in the thread of the test."""

from typing import Any

from gkm.kube.controller import StartedWatch
from gkm.kube.informers import Selection
from gkm.kube.reflector import Reflector

Watched = Reflector[Any] | Selection[Any]


def reflector_of(watch: StartedWatch) -> Reflector[Any]:
    """Return the reflector of a watch, which a selection may share with others."""
    found = watch._shared.reflector if isinstance(watch, Selection) else watch
    assert isinstance(found, Reflector)
    return found


def list_now(watch: Watched) -> None:
    """List as a thread of the watch would, which is not started."""
    if isinstance(watch, Selection):
        watch._shared.add(watch)
    reflector_of(watch)._list()
