"""The alerts by Debian's promtool: the file is good, and each alert fires when it should and not before."""

import subprocess
from pathlib import Path

import pytest
import yaml
from kustomizations.directories import COMPONENTS
from support.chart.helm import HelmFailed, render
from support.monitoring.alert_cases import CASES, promtool_tests
from support.monitoring.expressions import ALERTS, DASHBOARD, alerts
from support.monitoring.prometheus import PACKAGE
from support.peers import require

SECONDS = 120


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [require.command("promtool", PACKAGE), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def faults(directory: Path, suffix: str = "") -> str:
    """Return what promtool finds when it tests each alert by itself, its expression followed by `suffix`."""
    rules = {rule["alert"]: rule | {"expr": f"({rule['expr']}){suffix}"} for rule in alerts()}
    files = []
    for case in CASES:
        alone, file = directory / f"{case.alert}.yaml", directory / f"{case.alert}.test.yaml"
        alone.write_text(yaml.safe_dump({"groups": [{"name": "alone", "rules": [rules[case.alert]]}]}))
        file.write_text(yaml.safe_dump(promtool_tests(case, str(alone))))
        files.append(file)
    done = promtool("test", "rules", *files)
    found = done.stdout + done.stderr
    assert done.returncode == (1 if "FAILED" in found else 0), found
    return found if done.returncode else ""


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "--lint-fatal", ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    assert faults(tmp_path) == ""


def test_every_alert_has_series_that_make_it_fire_and_series_that_do_not() -> None:
    assert sorted(case.alert for case in CASES) == sorted(rule["alert"] for rule in alerts())
    assert all(case.quiet for case in CASES)


def test_an_alert_that_never_fires_and_one_that_always_fires_are_found(tmp_path: Path) -> None:
    never, always = faults(tmp_path, " and vector(1) > 2"), faults(tmp_path, " or vector(1)")
    for case in CASES:
        assert f'alertname=\\"{case.alert}\\"' in never
        assert f'alertname=\\"{case.alert}\\"' in always


def test_the_chart_ships_the_rules_and_the_dashboard_as_they_are() -> None:
    require.peer("helm")
    values = {"metrics": {"alerts": True, "dashboards": True, "alertLabels": {"release": "prometheus"}}}
    found = {each.key[:1] + each.key[2:]: each.value for each in render(values)}
    rule, dashboard = found["PrometheusRule", "gkm-alerts"], found["ConfigMap", "gkm-dashboard"]
    assert rule["spec"] == yaml.load(ALERTS.read_text(encoding="utf-8"), yaml.CSafeLoader)
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert dashboard["data"] == {"gkm.json": DASHBOARD.read_text(encoding="utf-8")}
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert {"alerts", "dashboards"} <= {component.name for component in COMPONENTS}


def test_links_to_runbooks_begin_where_people_read_them() -> None:
    require.peer("helm")
    (rule,) = (
        each.value
        for each in render({"metrics": {"alerts": True, "runbooks": "https://git.example/gkm/"}})
        if each.key[0] == "PrometheusRule"
    )
    links = [one["annotations"]["runbook_url"] for group in rule["spec"]["groups"] for one in group["rules"]]
    assert len(links) == len(alerts())
    assert all(link.startswith("https://git.example/gkm/docs/runbooks/") for link in links)
    with pytest.raises(HelmFailed, match="runbooks"):
        render({"metrics": {"runbooks": "git.example"}})
