"""Which refusals are known, of what they were the answer, and whose fixes are to be looked for. In memory only."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from gkm.packing.values import Fix

from gkm_operator.plans.planning.refusals import Unfit

RETRY_SECONDS = 60.0
"""What an API server refuses may be taken later: of quotas, rights and policies no watch tells."""
FIXES_SECONDS = 60.0
"""Fixes of one run are looked for so often at most: they can take seconds, and what is free changes all the time."""


@dataclass(slots=True)
class CachedRefusal:
    """Why a run does not fit. `question` is what it asked; of the same question and `version` it is the answer again.

    `world` tells the same at less cost: while it is equal, so is the version. `fixes` were those of `fixed`, a version.
    From `until` on, in seconds of the clock, it is asked for again although nothing changed.
    """

    question: Hashable
    version: str
    world: Hashable
    unfit: Unfit
    fixes: Sequence[Fix] | None = None
    fixed: str = ""
    fixed_at: float = float("-inf")
    until: float = float("inf")


class RefusalCache:
    """Answers by the uid of the run. For the one thread that plans."""

    def __init__(self) -> None:
        self._known: dict[str, CachedRefusal] = {}

    def get(self, uid: str) -> CachedRefusal | None:
        """Return the last refusal of a run."""
        return self._known.get(uid)

    def put(self, uid: str, answer: CachedRefusal) -> None:
        """Keep a refusal. Fixes of an older one to the same question stay until new ones are found."""
        old = self._known.get(uid)
        if old is not None and (old.question, old.unfit.reason) == (answer.question, answer.unfit.reason):
            answer.fixes, answer.fixed, answer.fixed_at = old.fixes, old.fixed, old.fixed_at
        self._known[uid] = answer

    def remove(self, uid: str) -> None:
        """Drop the refusal of a run that fits."""
        self._known.pop(uid, None)

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget runs that are not there any more."""
        for uid in self._known.keys() - set(uids):
            del self._known[uid]

    def to_fix(self, uids: Iterable[str], now: float) -> list[str]:
        """Return whose fixes are to be looked for: first those for whom nobody ever has."""
        due = []
        for uid in uids:
            answer = self._known.get(uid)
            if answer is not None and answer.fixed != answer.version and now >= answer.fixed_at + FIXES_SECONDS:
                due.append((answer.fixed_at, uid))
        # Of equals in the order in which they came: by priority.
        return [uid for _, uid in sorted(due, key=lambda item: item[0])]
