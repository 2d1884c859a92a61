"""Hostile rows, class 2: registries that are slow, break off or refuse for a while."""

from support.images.hostile_places import blob, spoilt
from support.images.hostile_row import AWAY, Row
from support.registry import faults

NETWORKS = (
    Row("silence before the answer", 2, spoilt(blob(faults.stalled)), AWAY, "did not answer in time"),
    Row(
        "silence in the middle",
        2,
        spoilt(blob(faults.stalled, 100), blob(faults.status, 500)),
        AWAY,
        "the registry",
        parts=True,
    ),
    Row("a byte at a time", 2, spoilt(blob(faults.dripping, 1, 0.2)), AWAY, "too slowly", parts=True),
    Row(
        "a header a byte at a time",
        2,
        spoilt(lambda s: faults.Fault(s.layers[0], drip_headers=(1, 0.1))),
        AWAY,
        "registry",
    ),
    Row("429 for a minute", 2, spoilt(blob(faults.status, 429, headers={"Retry-After": "60"})), AWAY, "answers 429"),
    Row("429 for ever", 2, spoilt(blob(faults.status, 429)), AWAY, "answers 429"),
    Row("resets always", 2, spoilt(blob(faults.reset, 0)), AWAY, "broke"),
)
