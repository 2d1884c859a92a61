"""After any history of changes, kills and stale watches, the pods are those that the PodCliqueSet requires."""

from contextlib import suppress
from typing import Any

import pytest
from gkm.kube.errors import ApiError
from gkm_operator.cliques import writer
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.grove.driver import CLIQUES, GROUPS, PODS, SERVICES, SETS
from support.grove.objects import NAMESPACE, clique, pod_clique_set, scaling_group
from support.kube.garbage import collect_garbage
from support.kube.interposed_api import Killed
from support.operator.cliques import InjectingApi, Mortal, Stepper, a_set, differences, observed, set_key

Json = dict[str, Any]
STEPS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 7)), min_size=1, max_size=14)


class History:
    """A cluster in which users, kubelets and kills act by numbers."""

    def __init__(self) -> None:
        self.api = InjectingApi()
        self.api.create(SETS, a_set())
        self.process = Stepper(self.api)

    def step(self, act: int, number: int) -> None:
        acts = [
            self.scale_set,
            self.change_image,
            self.remove_field,
            self.scale_group,
            self.scale_clique,
            self.end_pod,
            self.delete_pod,
            self.delete_clique,
            self.delete_group,
            self.edit_clique,
            self.replace_set,
            self.restart,
            self.work_on_stale_watches,
            self.work,
            self.refuse,
            self.settle,
        ]
        try:
            acts[act](number)
        except ApiError as error:
            assert error.not_found  # users act on what may be gone

    def scale_set(self, number: int) -> None:
        self.api.merge(SETS, "set", {"spec": {"replicas": number % 4}}, NAMESPACE)

    def change_image(self, number: int) -> None:
        cliques = self.api.get(SETS, "set", NAMESPACE)["spec"]["template"]["cliques"]
        container = cliques[number % 3]["spec"]["podSpec"]["containers"][0]
        container["image"] = f"registry.test/app:{number}"
        container["env"] = [{"name": "NUMBER", "value": str(number)}]
        self.api.merge(SETS, "set", {"spec": {"template": {"cliques": cliques}}}, NAMESPACE)

    def remove_field(self, number: int) -> None:
        cliques = self.api.get(SETS, "set", NAMESPACE)["spec"]["template"]["cliques"]
        cliques[number % 3]["spec"]["podSpec"]["containers"][0].pop("env", None)
        self.api.merge(SETS, "set", {"spec": {"template": {"cliques": cliques}}}, NAMESPACE)

    def scale_group(self, number: int) -> None:
        self.api.merge(GROUPS, "set-0-decode", {"spec": {"replicas": number % 4}}, NAMESPACE)

    def scale_clique(self, number: int) -> None:
        name = ("set-0-router", "set-0-decode-1-worker")[number % 2]
        self.api.merge(CLIQUES, name, {"spec": {"replicas": number % 4}}, NAMESPACE)

    def end_pod(self, number: int) -> None:
        for name in sorted(observed(self.api, PODS))[number::3]:
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}}
            phase = {"status": {"phase": ("Failed", "Succeeded")[number % 2]}}
            self.api.apply(PODS, body | phase, field_manager="kubelet", subresource="status")

    def delete_pod(self, number: int) -> None:
        for name in sorted(observed(self.api, PODS))[number : number + 2]:
            self.api.delete(PODS, name, NAMESPACE)

    def delete_clique(self, number: int) -> None:
        for name in sorted(observed(self.api, CLIQUES))[number : number + 1]:
            self.api.delete(CLIQUES, name, NAMESPACE)

    def delete_group(self, _number: int) -> None:
        self.api.delete(GROUPS, "set-0-decode", NAMESPACE)

    def edit_clique(self, number: int) -> None:
        # Not the image: a pod that is made before the repair would have it (docs/reference/built-in-cliques.md).
        edited = {"roleName": "other", "podSpec": {"hostNetwork": True}}
        name = ("set-0-router", "set-0-decode-0-leader")[number % 2]
        self.api.merge(CLIQUES, name, {"spec": edited, "metadata": {"labels": {"app": "x"}}}, NAMESPACE)

    def replace_set(self, number: int) -> None:
        self.api.delete(SETS, "set", NAMESPACE)
        if number % 2:
            collect_garbage(self.api)
        self.api.create(SETS, a_set(number % 3))

    def restart(self, number: int) -> None:
        """The next process ends at one of its writes, and the one after it works on."""
        mortal = Stepper(Mortal(self.api, number))
        with suppress(Killed):
            for _ in range(3):
                mortal.observe()
                mortal.reconcile()
        self.process = Stepper(self.api)

    def work_on_stale_watches(self, number: int) -> None:
        plurals = [kind.plural for kind in (SETS, GROUPS, CLIQUES, PODS, SERVICES)]
        self.process.observe(*(plural for bit, plural in enumerate(plurals) if (number + bit) % 3))
        self.process.reconcile()

    def work(self, number: int) -> None:
        for _ in range(number % 3 + 1):
            self.process.observe()
            self.process.reconcile()

    def settle(self, _number: int) -> None:
        self.process.settle()

    def refuse(self, number: int) -> None:
        """Admission, a quota or an overloaded server refuses some of the requests of a pass."""
        status = (403, 409, 429, 500, 0)[number % 5]
        calls = iter(range(100))
        self.api.fault = lambda verb, _plural: (
            ApiError(status, "", "refused") if verb in {"create", "merge", "delete"} and next(calls) % 2 else None
        )
        self.process.observe()
        self.process.reconcile()
        self.api.fault = lambda _verb, _plural: None


@settings(max_examples=examples(300))
@given(STEPS)
def test_after_any_history_the_pods_are_the_required_ones(steps: list[tuple[int, int]]) -> None:
    history = History()
    for act, number in steps:
        history.step(act, number)
    history.process.settle()
    assert differences(history.api) == []
    writes = Mortal(history.api)
    fresh = Stepper(writes)
    fresh.settle()
    assert writes.writes == []


def test_a_process_may_end_before_every_write() -> None:
    """The whole life of a set: made, scaled out, changed, scaled in. The end before a write is that after the last."""
    lives, ended = 0, True
    while ended:
        api = InjectingApi()
        api.create(SETS, pod_clique_set("set", clique("a"), clique("b"), scaling_groups=[scaling_group("g", "b")]))
        ended = _live(Mortal(api, lives), api)
        assert differences(api) == []
        lives += 1
    # 2 Services, 4 PodCliques, 2 scaling groups, 8 pods made and 6 deleted, and their status.
    assert lives > 30


def _live(mortal: Mortal, api: InjectingApi) -> bool:
    """Live through the changes of a set; return whether the process ended, and another one took over."""
    ended, process = False, Stepper(mortal)
    for change in (None, {"replicas": 2}, {"template": {"priorityClassName": "high"}}, {"replicas": 1}):
        if change is not None:
            api.merge(SETS, "set", {"spec": change}, NAMESPACE)
        try:
            process.settle()
        except Killed:
            ended, process = True, Stepper(api)
            process.settle()
    return ended


def test_a_pass_sends_no_more_requests_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_REQUESTS", 3)
    api = InjectingApi()
    api.create(SETS, a_set(4))
    writes = Mortal(api)
    process = Stepper(writes)
    process.observe()
    process.reconcile()
    assert (len(writes.writes), list(process.controller.queue._due)) == (3, [set_key()])
    process.settle(100)
    assert differences(api) == []
