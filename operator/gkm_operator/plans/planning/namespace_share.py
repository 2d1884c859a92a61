"""Limit the GPUs that plans of one namespace reserve without pods while other namespaces wait. Pure.

A plan holds GPUs that no pod uses yet. Without a limit, one namespace could hold all of them with many Runs that it
deletes and creates again (docs/decisions/0006-fairness.md). The limit is on GPUs without pods only: how many GPUs pods
may use is for a ResourceQuota to say. A namespace that holds no GPUs may always plan one run, of any size.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gkm.api.grammar import count_of
from gkm.topology.labels import flavor
from gkm.topology.survey import TopologySurvey

from gkm_operator.plans.planning.assessment import RunAssessment, all_gpus
from gkm_operator.plans.planning.refusals import PlanReason, Unfit
from gkm_operator.plans.state.free_capacity import Reservations
from gkm_operator.plans.state.objects import RunKey


class _Holder(NamedTuple):
    """A namespace and a flavor."""

    namespace: str
    flavor: str


@dataclass(frozen=True, slots=True)
class NamespaceShare:
    """The limit on GPUs that a namespace's plans reserve without pods, in one pass.

    The limit is `percent` of the GPUs of a flavor; `totals` has the GPUs by flavor.

    `runs` has the runs of each namespace by the flavor of their plans, and `waiting` the namespaces with a run that
    waits for its first plan, by flavor.
    """

    percent: int
    totals: Mapping[str, int]
    runs: Mapping[_Holder, Sequence[RunKey]]
    waiting: Mapping[str, Collection[str]]

    @classmethod
    def of(cls, percent: int, survey: TopologySurvey, cases: Iterable[RunAssessment]) -> "NamespaceShare":
        """Return the limit for the Runs of a planning pass."""
        runs: dict[_Holder, list[RunKey]] = {}
        waiting: dict[str, set[str]] = {}
        for case in cases:
            holder = _holder(case)
            held = holder if case.plan is None else holder._replace(flavor=case.plan.spec.flavor)
            runs.setdefault(held, []).append(case.run.key)
            if case.plan is None and case.run.metadata.deletion_timestamp is None:
                waiting.setdefault(holder.flavor, set()).add(holder.namespace)
        totals: Counter[str] = Counter()
        for located in survey.located if len(runs) > 1 else ():
            totals[located.flavor] += located.gpus
        return cls(percent, totals, runs, waiting)

    def refusal(self, case: RunAssessment, reservations: Reservations) -> Unfit | None:
        """Return why a Run must wait because of its namespace's limit, None if it need not wait."""
        if not case.holds_anew or not self.exceeded_by(case, reservations):
            return None
        holder, gpus = _holder(case), _without_pods(case)
        held, total = self._held_by_others(case, reservations), self.totals.get(holder.flavor, 0)
        return Unfit(
            PlanReason.NAMESPACE_SHARE,
            f"plans of this namespace hold {count_of(held, 'GPU')} of flavor {holder.flavor} that no pod uses. With "
            f"{gpus} more they would hold over {self.percent} % of {total} (packing.namespaceShare), and a run of "
            "another namespace waits: start the pods of its runs, or wait until their plans expire",
            "namespace",
        )

    def exceeded_by(self, case: RunAssessment, reservations: Reservations) -> bool:
        """Return whether a new plan of this Run would exceed the limit of its namespace.

        A namespace that holds no GPUs may plan one run of any size. It may not renew a live plan for a single pod.
        """
        holder = _holder(case)
        if not set(self.waiting.get(holder.flavor, ())) - {holder.namespace}:
            return False
        held = self._held_by_others(case, reservations)
        if (case.plan is None or case.over) and not held:
            return False
        return (held + _without_pods(case)) * 100 > self.totals.get(holder.flavor, 0) * self.percent

    def _held_by_others(self, case: RunAssessment, reservations: Reservations) -> int:
        return reservations.sum_of(run for run in self.runs.get(_holder(case), ()) if run != case.run.key)


def _without_pods(case: RunAssessment) -> int:
    """Return the GPUs that a plan of a run holds beside the GPUs of its pods."""
    return max(0, all_gpus(case.run.spec) - sum(case.held.values()))


def _holder(case: RunAssessment) -> _Holder:
    return _Holder(case.run.key.namespace, flavor(case.run.spec.flavor))
