"""The command without a cluster, and its output."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gkm_cli.clusters.connection import ClusterConnection
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.doctor import diagnosis
from gkm_cli.doctor.checks import CHECKS
from gkm_cli.doctor.diagnosis import MAX_ROWS, as_list, print_results
from gkm_cli.doctor.findings import Finding, Severity, command, some
from gkm_cli.doctor.options import DoctorOptions
from gkm_cli.doctor.runner import Result
from gkm_cli.output import Output, UsageError, show
from support.cli.command import gkm
from support.host import ports
from support.kube import kubeconfigs
from support.kube.fake_api import FakeApi

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "doctor.md"
USER = {"token": "a-secret-token"}
HOSTILE = "\x1b[2J\u202e\r\n\x07" + "n" * 3000


def test_an_api_server_that_is_away_is_one_line(tmp_path: Path) -> None:
    server = f"http://127.0.0.1:{ports.free()}"
    done = gkm("doctor", "--kubeconfig", kubeconfigs.write(tmp_path / "kubeconfig", server, USER), "-o", "json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the API server does not answer: ")
    assert "check the cluster in the kubeconfig" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[", b"[1]", b"clusters: 1", b"current-context: c", b"contexts: [{name: c}]\ncurrent-context: c"],
)
def test_a_file_that_is_no_kubeconfig_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    done = gkm("doctor", "--kubeconfig", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the kubeconfig cannot be used: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--kubeconfig", "/nowhere"], ["--context", "another"]])
def test_a_kubeconfig_or_context_that_does_not_exist_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    path = kubeconfigs.write(tmp_path / "kubeconfig", "http://127.0.0.1:1", USER)
    file = ["--kubeconfig", str(path)] if "--context" in arguments else []
    done = gkm("doctor", *file, *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "--context" in done.stderr
    assert "a-secret-token" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--grace", "-1"], "'--grace': -1.0 is not in the range 0<=x<=86400"),
        (["--check", "nonsense"], "there is no check nonsense"),
        (["--grace", "x"], "'--grace': 'x' is not a valid float"),
        (["-o", "xml"], "'xml' is not one of"),
        (["extra"], "unexpected extra argument(s) (extra)"),
    ],
)
def test_wrong_options_are_wrong_usage(arguments: list[str], why: str) -> None:
    done = gkm("doctor", *arguments)
    assert (done.returncode, why in done.stderr) == (2, True), done


def test_a_namespace_and_no_check_of_it_is_wrong_usage_and_not_a_good_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "connected", lambda *_: ClusterConnection(FakeApi(), "default"))
    words = "^these checks need the whole cluster: config/keys, nodes/clock; leave out --namespace$"
    with pytest.raises(UsageError, match=words):
        diagnosis.diagnose(ClusterOptions(), DoctorOptions(namespace="ml-apps", checks=["config/keys", "nodes/clock"]))


def test_help_has_an_example() -> None:
    done = gkm("doctor", "--help")
    assert (done.returncode, "Example: gkm doctor --context production" in done.stdout) == (0, True)


def test_other_commands_do_not_wait_for_the_kubernetes_client() -> None:
    code = "import sys, gkm_cli.main; print('kubernetes' in sys.modules, 'gkm.kube' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False False\n"


def result(severity: Severity, check: str = "domains/x", text: str = "") -> Result:
    return Result(check, Finding(severity, f"o{text}", f"d{text}", f"w{text}", f"h{text}"))


EACH = [result(severity, f"domains/{severity.value.replace(' ', '-')}") for severity in Severity]


def test_programs_get_a_list_whose_entries_say_whether_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    show(as_list(EACH), Output.JSON, lambda: None)
    printed = json.loads(capsys.readouterr().out)
    assert [(entry["severity"], entry["ok"]) for entry in printed] == [
        ("ok", True),
        ("warning", True),
        ("problem", False),
        ("not checked", False),
        ("skipped", None),
    ]
    assert printed[2] == {
        "check": "domains/problem",
        "ok": False,
        "severity": "problem",
        "object": "o",
        "detail": "d",
        "why": "w",
        "hint": "h",
    }


def test_people_see_the_worst_first_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(EACH, ["domains/switch"])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].split() == ["RESULT", "CHECK", "ABOUT"]
    assert [line.split()[0] for line in lines[1:6]] == ["problem", "not", "warning", "ok", "skipped"]
    causes = [line for line in lines[6:] if line]
    assert causes[:3] == ["problem: o: d", "  why: w", "  next: h"]
    assert [line for line in causes if not line.startswith("  ")] == [
        "problem: o: d",
        "not checked: o: d",
        "warning: o: d",
        "5 checks: 1 problem, 1 warning, 1 not checked, 1 skipped",
        "left out, because they need the whole cluster: domains/switch",
    ]


def test_a_command_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    long = "kubectl patch computedomain " + "n" * 253 + " --type=merge -p '{}'"
    print_results([Result("domains/x", Finding(Severity.PROBLEM, "o", "d", "w", long))], [])
    assert f"  next: {long}\n" in capsys.readouterr().out


def test_of_many_rows_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    print_results([result(Severity.PROBLEM)] * (MAX_ROWS + 5), [])
    lines = capsys.readouterr().out.splitlines()
    assert lines[MAX_ROWS + 1] == "... and 5 more; -o json has all"


@pytest.mark.parametrize("output", list(Output))
def test_hostile_names_reach_no_terminal(capsys: pytest.CaptureFixture[str], output: Output) -> None:
    hostile = [result(Severity.PROBLEM, text=HOSTILE)]
    show(as_list(hostile), output, lambda: print_results(hostile, []))
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.splitlines())
    assert printed.count("n") > 4 * 3000


def test_a_hostile_name_adds_no_word_to_a_command() -> None:
    assert command("kubectl", "delete", "x; rm -rf /", "$(id)") == "kubectl delete 'x; rm -rf /' '$(id)'"


def test_the_page_describes_every_check_and_no_other() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^\| `(\w+/[\w-]+)` \|", page, re.MULTILINE) == [check.name for check in CHECKS]
    (narrow,) = re.findall(r"^These checks are made: (.*)\.$", page, re.MULTILINE)
    assert re.findall(r"`([^`]+)`", narrow) == [check.name for check in CHECKS if not check.cluster_wide]


def test_some_names_are_sorted_and_counted() -> None:
    assert (some([]), some("cba"), some("gfedcba")) == ("", "a, b, c", "a, b, c, d, e and 2 more")
