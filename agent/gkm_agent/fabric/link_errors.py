"""NVLinks whose errors recur, from a series of readings. A reading counts once, however far a counter grew in it.

Links are down and train while a GPU registers, as at each boot: only an attached GPU is read. A counter that is smaller
than before is that of another driver. After a restart of the agent, the series begins anew.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from gkm.api.grammar import agree, listed
from gkm.gpus.values import Gpu, Inventory, LinkErrors

from gkm_agent.fabric.nvlink import is_attached

WINDOW_READINGS = 30
"""Number of readings in the window: half an hour, at one reading a minute."""
RECOVERED_READINGS = 3
"""Readings of a window with a recovery of a link from which on the link is faulty.

Sound links do not recover: of 5,760 links, one had recoveries, 3 of them in 21 minutes. Five days later it failed
(marin-community/marin #9086).
"""
REPLAYED_READINGS = 16
"""Readings of a window with a replay of a link from which on the link is faulty.

A sound link may send packets again. More than 15 minutes of 30 with errors are too many
(NVIDIA/nvidia-resiliency-ext #302).
"""
LINK_ERRORS = "link errors"
"""The word for a faulty link in messages and in docs/reference/reasons.md."""
_SHOWN = 8
_Link = tuple[int, int]
"""The index of a GPU and the number of a link."""
_Count = Callable[[LinkErrors], int | None]


class Growth(NamedTuple):
    """By how much the counters of all links grew since the last reading."""

    replays: int
    recoveries: int


class LinkWindow:
    """The links whose error counters grew in each of the last readings. Only one thread may use it."""

    def __init__(self) -> None:
        self._last: dict[_Link, LinkErrors] = {}
        self._replayed: deque[frozenset[_Link]] = deque(maxlen=WINDOW_READINGS)
        self._recovered: deque[frozenset[_Link]] = deque(maxlen=WINDOW_READINGS)

    def observe(self, inventory: Inventory) -> Growth:
        """Add a reading; return how much the error counters grew since the previous reading."""
        last, self._last = self._last, dict(_links(inventory.gpus))
        replays = _grown(last, self._last, lambda link: link.replays)
        recoveries = _grown(last, self._last, lambda link: link.recoveries)
        self._replayed.append(frozenset(replays))
        self._recovered.append(frozenset(recoveries))
        return Growth(sum(replays.values()), sum(recoveries.values()))

    @property
    def fault(self) -> str:
        """Return a text with the links whose errors recur, "" without any.

        It has no counts: each change of the text is a write to the API.
        """
        limits = ((self._replayed, REPLAYED_READINGS), (self._recovered, RECOVERED_READINGS))
        links = sorted({link for readings, limit in limits for link in _frequent(readings, limit)})
        if not links:
            return ""
        names = listed([f"{link} of GPU {gpu}" for gpu, link in links], _SHOWN)
        return f"{LINK_ERRORS}: NVLink {agree(len(links), 'link', 'links')} {names}"


def _links(gpus: tuple[Gpu, ...]) -> Iterator[tuple[_Link, LinkErrors]]:
    return (((gpu.index, link.link), link) for gpu in gpus if is_attached(gpu) for link in gpu.links)


def _grown(last: dict[_Link, LinkErrors], now: dict[_Link, LinkErrors], count: _Count) -> dict[_Link, int]:
    """Return the links whose counter grew, and by how much."""
    pairs = {key: (count(last[key]), count(link)) for key, link in now.items() if key in last}
    return {key: new - old for key, (old, new) in pairs.items() if old is not None and new is not None and new > old}


def _frequent(readings: deque[frozenset[_Link]], limit: int) -> Iterator[_Link]:
    return (link for link, number in Counter(chain.from_iterable(readings)).items() if number >= limit)
