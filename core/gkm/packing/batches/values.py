"""What a batch is made of, and what comes out: frozen values, no behaviour that decides anything."""

from dataclasses import dataclass

from gkm.packing.values import Node, Plan, Refusal, Request

MAX_RUNS = 256
"""More runs wait for the next batch: each is planned a few times, and a few milliseconds each add up."""
MAX_PRIORITY = 10**9
"""As far as priority classes of pods go."""
MAX_NAME = 253


class InvalidBatchError(ValueError):
    """The queue cannot be planned: which run, and why."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A run that waits. `nodes` are those that it may use, all of the batch where it says None.

    Nodes of one name are one node, whoever lists it: what it has is the same for all, its scopes are the run's own.
    Ceilings are each run's own too: two runs that name a scope may take its ceiling each.
    """

    name: str
    request: Request
    nodes: tuple[Node, ...] | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no name or no priority.

        Raises:
            InvalidBatchError: which run, and what is wrong with it.
        """
        if not 1 <= len(self.name) <= MAX_NAME:
            raise InvalidBatchError(f"a run has a name of 1 to {MAX_NAME} characters: {self.name[:40]!r} is none")
        # bool is an int to Python, and NaN compares with nothing.
        if type(self.priority) is not int or abs(self.priority) > MAX_PRIORITY:
            raise InvalidBatchError(
                f"run {self.name!r} has priority {str(self.priority)[:40]}: whole numbers up to {MAX_PRIORITY} are, "
                "and as far below 0"
            )


@dataclass(frozen=True, slots=True)
class Admitted:
    """A run that fits, and its plan on what the runs before it in the batch left.

    With `reserved` the plan also leaves GPUs to runs after it, which would not fit otherwise: alone it could be better.
    """

    name: str
    plan: Plan
    reserved: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """A run that does not fit on what the batch leaves, and why. `fits_alone` says that it would without the batch."""

    name: str
    refusal: Refusal
    fits_alone: bool


@dataclass(frozen=True, slots=True)
class Reached:
    """GPUs of the runs of one priority, spares not counted: what was asked for, what was admitted, and the bound.

    No batch admits more than `bound` of this priority that admits as many of each higher one.
    """

    priority: int
    asked: int
    admitted: int
    bound: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What is admitted, in the order of planning, and what is not, by priority and name.

    `reached` has the highest priority first; `objective` and `bound` are the sums of its GPUs, and `gap` is what lies
    between. With a gap of 0 no batch admits more. `domains` are those of all plans, added. `cut_short` is true where
    time ran out: only then could the same batch come out better, or otherwise, on another machine.
    """

    admitted: tuple[Admitted, ...]
    rejected: tuple[Rejected, ...]
    reached: tuple[Reached, ...]
    objective: int
    bound: int
    gap: int
    domains: int
    cut_short: bool
