"""Dashboard, alerts and reference against a real Prometheus that reads every process of GKM at work."""

import json
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest
import yaml
from prometheus_client.samples import Sample
from support.cluster.cluster import Cluster
from support.monitoring import expressions
from support.monitoring.expressions import DASHBOARD, Expression
from support.monitoring.prometheus import PACKAGE, Prometheus
from support.monitoring.reference import documented
from support.monitoring.site import PODS, Mounted, monitored, up
from support.monitoring.state_metrics import FILES, samples, state_metrics
from support.operator.accounts import Accounts
from support.operator.seen import NODE, TEAM
from support.peers import require

pytestmark = pytest.mark.mounts
PROGRAMS = {f"gkm-system/gkm-{program}": program for program in ("agent", "controllers", "admission", "provider")}
Site = tuple[Accounts, Prometheus, Mounted]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    require.command("prometheus", PACKAGE)
    with monitored(tmp_path_factory.mktemp("monitored")) as running:
        yield running


@pytest.fixture
def cluster(site: Site) -> Cluster:
    return site[0].cluster


@pytest.fixture
def server(site: Site) -> Prometheus:
    return site[1]


def problems(server: Prometheus, checked: list[Expression]) -> list[str]:
    """Return what is wrong: an expression that does not parse, or a selector that finds nothing.

    A value of a label that no process has had yet, such as a failure, must be documented. Metrics of objects have a
    test of their own (tests/unit/chart/test_dashboard.py): kube-state-metrics does not run here.
    """
    pages, found = {row.name: row for row in documented().values()}, []
    for expression in checked:
        try:
            server.query(expression.text)
        except HTTPError as error:
            found.append(f"{expression.place}: {json.load(error)['error']}")
            continue
        for selector in expression.selectors():
            if selector.is_of_objects or server.series(selector.text):
                continue
            row = pages.get(selector.family)
            known = row is not None and all(
                label in row.labels and value in (row.labels[label] or ()) for label, value in selector.values()
            )
            if not (known and server.series(selector.metric)):
                found.append(f"{expression.place}: {selector.text} selects nothing")
    return found


def test_the_pod_monitors_find_every_process_and_name_its_pod_and_node(server: Prometheus) -> None:
    found = {target["labels"]["pod"]: target["labels"] for target in up(server)}
    assert set(found) == {f"{owner}-{process}" for process, owner in PODS.items()}
    assert all(labels["namespace"] == "gkm-system" for labels in found.values())
    assert {pod: labels["node"] for pod, labels in found.items() if "node" in labels} == {"gkm-agent-agent": NODE}


def test_every_expression_of_the_dashboard_selects_what_exists(server: Prometheus) -> None:
    checked = expressions.of_dashboard()
    assert len(checked) > 40
    assert problems(server, checked) == []


def test_every_expression_of_the_alerts_selects_what_exists(server: Prometheus) -> None:
    assert problems(server, expressions.of_alerts()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gkm_pull_bytes_total", "gkm_pulled_bytes_total"),
        ("gkm_cache_state{state=", "gkm_cache_state{phase="),
        ('{state=\\"Ready\\"}', '{state=\\"Reddy\\"}'),
        ('namespace=\\"gkm-system\\"', 'namespace=\\"gkm\\"'),
        ("histogram_quantile(0.50", "histogram_quantile(sum 0.50"),
    ],
)
def test_a_fault_in_the_dashboard_is_found(server: Prometheus, old: str, new: str) -> None:
    text = DASHBOARD.read_text(encoding="utf-8")
    assert old in text
    assert problems(server, expressions.of_dashboard(text.replace(old, new)))


def test_prometheus_evaluates_every_alert(server: Prometheus) -> None:
    rules = {rule["name"]: rule for rule in server.rules()}
    assert rules.keys() == {rule["alert"] for rule in expressions.alerts()}
    assert {name: rule["lastError"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
    # What failed here is seen.
    assert {"GKMCacheFailed"} <= {name for name, rule in rules.items() if rule["alerts"]}


def test_the_reference_has_every_metric_that_a_process_exposes_and_no_other(server: Prometheus) -> None:
    exposed = {(PROGRAMS[job], name): kind for (job, name), kind in server.metrics().items() if name.startswith("gkm_")}
    pages = {key: row.type for key, row in documented().items()}
    # The two processes of the operator expose the names of each other's metrics.
    names = {name for _, name in exposed}
    assert names == {name for _, name in pages}
    assert pages.items() <= exposed.items()


@pytest.mark.heavy
def test_kube_state_metrics_makes_metrics_of_our_objects(
    site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require.peer("kube-state-metrics")
    file = yaml.load((FILES / "custom-resource-state.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    configured = {f"gkm_object_{each['name']}" for kind in file["spec"]["resources"] for each in kind["metrics"]}
    with state_metrics(cluster, tmp_path_factory.mktemp("ksm")) as (address, process):
        cluster.until(lambda: configured <= {each.name for each in samples(address)}, "a sample of every metric")
        found = samples(address)
        assert "forbidden" not in process.log.read_text()
    (info,) = (each for each in found if is_sample(each, "cache_info", name="llama", namespace=TEAM))
    assert info.labels["image"] == site[0].image
    (verified,) = (each for each in found if is_sample(each, "cache_condition", name="llama", type="Verified"))
    assert (verified.labels["reason"], verified.value) == ("CosignSuccess", 1)
    states = {each.labels["cache"]: each.labels["state"] for each in found if is_sample(each, "node_cache_bytes")}
    assert states == {"llama": "Ready", "rocm": "Incompatible", "damaged": "Failed"}
    phases = {each.labels["phase"]: each.value for each in found if is_sample(each, "task_group_phase", name="g")}
    assert sum(phases.values()) == 1


def is_sample(sample: Sample, metric: str, **labels: str) -> bool:
    return sample.name == f"gkm_object_{metric}" and labels.items() <= sample.labels.items()
