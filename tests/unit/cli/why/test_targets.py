"""`gkm why` chooses pods by name, workload, selector, cache and namespace: a bounded number, those that fail first."""

from typing import Any

import pytest
from gkm.api.features import INSTALL
from gkm.kube.resources import CLUSTERGKMCACHES, DAEMON_SETS, GKMCACHES, Resource
from gkm_cli.output import CommandFailed, NegativeResult, Output, UsageError
from gkm_cli.why import explanation
from gkm_cli.why.explanation import ChosenPods, chosen
from gkm_cli.why.facts import Facts
from gkm_cli.why.links import LinkResult, State, walk
from gkm_cli.why.observation import PODS, Observation
from gkm_cli.why.options import PodChoice
from support.kube.fake_api import FakeApi

Json = dict[str, Any]
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "server", "state": {"running": {}}}]}


PODS_OF_B = ("labeled", "other")


def workload(kind: str, plural: str, selector: Json, version: str = "apps/v1") -> tuple[Resource[Json], Json]:
    value = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "team"}}
    return Resource(version, kind, plural, namespaced=True, type=Json), value | {"spec": {"selector": selector}}


def add(api: FakeApi, name: str, status: Json, *, attributes: Json | None = None, **metadata: Json) -> None:
    """Create a pod with a volume that these attributes describe; without them it has no volume of GKM."""
    volumes = [{"name": "kernels", "csi": {"driver": "csi.gkm.io", "volumeAttributes": attributes}}]
    spec = {"nodeName": "n", "containers": [{"name": "server"}], "volumes": volumes if attributes else []}
    meta = {"name": name, "namespace": "team", "uid": name, **metadata}
    api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    api.merge(PODS, name, {"status": status}, "team", subresource="status")


def cluster() -> FakeApi:
    api = FakeApi()
    llama = {"cacheName": "llama"}
    add(api, "runs", RUNNING, attributes=llama, labels={"app": "a"})
    add(api, "waits", {"phase": "Pending"}, attributes=llama, labels={"app": "a"})
    add(api, "labeled", {"phase": "Pending"}, labels={"app": "b", "gkm.io/cache": "llama"})
    add(api, "other", {"phase": "Pending"}, labels={"app": "b"})
    add(api, "shared", RUNNING, attributes={"clusterCacheName": "llama"}, labels={"app": "c"})
    add(api, "family", RUNNING, attributes={"cacheName": "models"}, labels={"app": "c"})
    ended = {"terminated": {"exitCode": 1}}
    crash = {"phase": "Running", "containerStatuses": [{"name": "server", "state": {}, "lastState": ended}]}
    add(api, "crashes", crash, attributes={"cacheName": "qwen"}, labels={"app": "d"})
    add(api, "done", {"phase": "Succeeded"}, attributes=llama, labels={"app": "d"})
    cache = {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": {"name": "llama", "namespace": "team"}}
    api.create(GKMCACHES, cache | {"spec": {"image": "r.example/a:1", "family": "models"}})
    cache = {"apiVersion": "gkm.io/v1alpha1", "kind": "ClusterGKMCache", "metadata": {"name": "llama"}}
    api.create(CLUSTERGKMCACHES, cache | {"spec": {"image": "r.example/a:1"}})
    for made in (
        workload("Deployment", "deployments", {"matchLabels": {"app": "a"}}),
        workload("StatefulSet", "statefulsets", {"matchLabels": {"app": "b"}}),
        workload("DaemonSet", "daemonsets", {"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        workload("ReplicaSet", "replicasets", {"matchLabels": {"app": "none"}}),
        workload("Job", "jobs", {"matchLabels": {"app": "d"}}, "batch/v1"),
    ):
        api.create(*made)
    return api


@pytest.mark.parametrize(
    ("target", "labels", "names"),
    [
        ("runs", "", ["runs"]),
        ("po/other", "", ["other"]),
        ("", "", ["crashes", "labeled", "waits"]),
        ("", "app=c", ["family", "shared"]),
        ("deploy/x", "", ["waits", "runs"]),
        ("deployments/x", "", ["waits", "runs"]),
        ("statefulset/x", "", ["labeled", "other"]),
        ("job/x", "", ["crashes", "done"]),
        ("gkmcache/llama", "", ["labeled", "waits", "done", "family", "runs"]),
        ("cgkmc/llama", "", ["shared"]),
    ],
)
def test_a_target_means_its_pods_those_that_wait_or_fail_first(target: str, labels: str, names: list[str]) -> None:
    found = chosen(cluster(), target, "team", labels)
    assert ([pod.metadata.name for pod in found.pods], found.more) == (names, 0)


@pytest.mark.parametrize(
    ("target", "labels", "words"),
    [
        ("gone", "", "there is no pod gone in the namespace team"),
        ("deploy/gone", "", "there is no Deployment gone in the namespace team"),
        ("rs/x", "", "no pod is of ReplicaSet x; kubectl get pods -n team"),
        ("gkmcache/gone", "", "there is no GKMCache gone in the namespace team"),
        ("clustergkmcache/gone", "", "there is no ClusterGKMCache gone; gkm cache list -A"),
        ("", "app=none", "no pod has the labels app=none; kubectl get pods -n team"),
    ],
)
def test_a_target_without_pods_is_an_error_that_names_it(target: str, labels: str, words: str) -> None:
    with pytest.raises(CommandFailed, match=words):
        chosen(cluster(), target, "team", labels)


@pytest.mark.parametrize(
    ("target", "choice", "words"),
    [
        ("cronjob/x", PodChoice(), "names no pods"),
        ("deploy/", PodChoice(), "names no pods"),
        ("deploy/a/b", PodChoice(), "names no pods"),
        ("x", PodChoice(labels="a=b"), "x and -l exclude each other"),
        ("x", PodChoice(all_namespaces=True), "x and -A exclude each other"),
    ],
)
def test_a_target_of_another_kind_is_wrong_usage(target: str, choice: PodChoice, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        explanation.check(target, choice)


def test_the_number_of_pods_is_bounded_and_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanation, "MAX_PODS", 2)
    found = chosen(cluster(), "gkmcache/llama", "team", "")
    assert ([pod.metadata.name for pod in found.pods], found.more) == (["labeled", "waits"], 3)


def test_a_pod_that_succeeded_does_not_fail_whatever_its_sidecar_ended_with() -> None:
    api = FakeApi()
    stopped = {"name": "proxy", "state": {"terminated": {"exitCode": 143}}}
    done = {"phase": "Succeeded", "containerStatuses": [{"name": "server", "state": {"terminated": {"exitCode": 0}}}]}
    add(api, "done", done | {"initContainerStatuses": [stopped]}, attributes={"cacheName": "llama"})
    found = [pod.metadata.name for pod in chosen(api, "", "team", "").pods]
    assert found == [], "kubelet ends sidecars by a signal when the other containers have ended"


UNCHECKED = "not every link could be checked: hits; see their next steps"


def result(state: State) -> LinkResult:
    return LinkResult("kernels", "hits", state)


@pytest.mark.parametrize(
    ("states", "more", "end"),
    [
        ([State.OK, State.NOT_CHECKED, State.BROKEN], 0, NegativeResult()),
        (
            [State.OK, State.NOT_CHECKED],
            0,
            CommandFailed("not every link could be checked: hits; see their next steps"),
        ),
        ([State.OK], 1, CommandFailed("1 pod not looked at; name one, or select some with -l")),
    ],
)
def test_the_exit_code_is_the_worst_of_all_pods(states: list[State], more: int, end: Exception) -> None:
    with pytest.raises(type(end)) as caught:
        explanation.conclude([result(state) for state in states], more)
    assert str(caught.value) == str(end)
    explanation.conclude([result(State.OK)], 0)


def test_a_fault_of_several_pods_is_told_once_with_their_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = cluster()
    monkeypatch.setattr(explanation, "connected", lambda *_: type("C", (), {"api": api, "namespace": "team"}))
    with pytest.raises(NegativeResult) as caught:
        explanation.explain("sts/x", None, PodChoice(), Output.TABLE)  # type: ignore[arg-type]
    assert caught.value.args == ()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["POD", "NODE", "STATE", "LINKS"]
    assert [line.split() for line in lines[1:3]] == [[f"team/{pod}", "n", "broken", "volume"] for pod in PODS_OF_B]
    assert [line for line in lines if line.startswith("  pods: ")] == ["  pods: team/labeled", "  pods: team/other"]


def test_a_namespace_without_waiting_pods_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "connected", lambda *_: type("C", (), {"api": FakeApi(), "namespace": "team"}))
    explanation.explain("", None, PodChoice(), Output.TABLE)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "no pod of the namespace team waits or fails for a volume of GKM\n"


def driver(*env: Json) -> Json:
    spec = {"template": {"spec": {"containers": [{"name": "csi", "env": list(env)}]}}}
    return {"metadata": {"name": "gkm-csi", "namespace": "gkm-system"}, "spec": spec}


def facts_in_mode(found: Json | None, **attributes: str) -> Facts:
    api = FakeApi()
    if found:
        api.create(DAEMON_SETS, found)
    add(api, "p", RUNNING, attributes={"cacheName": "llama", **attributes})
    (facts,) = Observation(api).facts(api.get(PODS, "p", "team"))
    return facts


AUTO = driver({"name": "GKM_CAPTURE_MODE", "value": "auto"})


@pytest.mark.parametrize(
    ("found", "attributes", "private", "empty"),
    [
        (AUTO, {}, True, True),
        (AUTO, {"ifUnavailable": "wait"}, True, False),
        (AUTO, {"readOnly": "true"}, False, False),
        (AUTO, {"capture": "false"}, False, False),
        (AUTO, {"readOnly": "false"}, True, True),
        (driver(), {}, False, False),
        (driver({"name": "GKM_CAPTURE_MODE", "value": "off"}), {}, False, False),
        (driver({"name": "GKM_CAPTURE_MODE", "valueFrom": {}}), {}, None, None),
        ({"metadata": {"name": "gkm-csi", "namespace": "gkm-system"}, "spec": {"template": 1}}, {}, None, None),
        (None, {}, None, None),
        (None, {"readOnly": "false", "ifUnavailable": "wait"}, True, False),
    ],
)
def test_the_mode_of_capture_decides_about_a_volume_that_leaves_the_choice(
    found: Json | None, attributes: dict[str, str], *, private: bool | None, empty: bool | None
) -> None:
    facts = facts_in_mode(found, **attributes)
    assert (facts.is_private, facts.may_start_empty) == (private, empty)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (AUTO, "just in time, as capture.mode is auto"),
        (driver(), "it waits for the cache, as capture.mode is request"),
        (None, "not checked: the capture mode of the driver"),
    ],
)
def test_the_links_say_which_mode_applies(found: Json | None, words: str) -> None:
    api = FakeApi()
    if found:
        api.create(DAEMON_SETS, found)
    add(api, "p", RUNNING, attributes={"cacheName": "llama"})
    pod = {"spec": {"containers": [{"name": "server", "volumeMounts": [{"name": "kernels", "mountPath": "/c"}]}]}}
    api.merge(PODS, "p", pod, "team")
    (facts,) = Observation(api).facts(api.get(PODS, "p", "team"))
    assert words in next(step.detail for step in walk(facts) if step.link == "volume")


def test_the_next_step_for_a_missing_driver_is_to_install_it() -> None:
    """The next step was to show the DaemonSet that does not exist."""
    doubt = facts_in_mode(None).mode_doubt
    assert (doubt.why, doubt.hint) == ("there is no DaemonSet gkm-csi in gkm-system", INSTALL)


def test_an_object_that_several_pods_need_is_read_once() -> None:
    api = cluster()
    observation = Observation(api)
    for pod in chosen(api, "gkmcache/llama", "team", "").pods:
        observation.facts(pod)
    read = [name for verb, plural, name in api.calls if (verb, plural) == ("get", "gkmcachenodes")]
    assert read == ["n"]


def test_chosen_pods_are_none_where_the_list_is_empty() -> None:
    assert chosen(FakeApi(), "", "team", "") == ChosenPods([])
