"""Each failure that a test, a demo or a bench expects has its reason; the rule finds the ones that accept any."""

from pathlib import Path

import pytest
from support.negative_proofs import NAMED, unnamed

ROOT = Path(__file__).parents[3]
FOLDERS = ("bench", "hack", "scripts", "tests")


def problems(*body: str) -> list[str]:
    lines = ["def test_x(done, capsys, rig):", *(f"    {line}" for line in body)]
    return [each.problem for each in unnamed("\n".join(lines))]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_expected_failure_names_its_reason(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{each.line}: {each.problem}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for each in unnamed(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_types_that_name_the_reason_are_raised_or_caught_somewhere() -> None:
    roots = ("agent", "cli", "core", "csi", "operator", *FOLDERS)
    sources = "\n".join(path.read_text(encoding="utf-8") for root in roots for path in (ROOT / root).rglob("*.py"))
    assert [name for name in NAMED if sources.count(name) < 2] == []


@pytest.mark.parametrize(
    "body",
    [
        ("with pytest.raises(GKMError):", "    call()"),
        ("with pytest.raises(GKMError) as caught:", "    call()"),
        ("with pytest.raises(errors.ApiError):", "    call()"),
        ("with pytest.raises((LockBusy, OSError)):", "    call()"),
        ("with opened(), pytest.raises(ValueError):", "    call()"),
        ("with pytest.raises(OSError, match=''):", "    call()"),
        ("with pytest.raises(OSError, match=r'.'):", "    call()"),
        ("with pytest.raises(OSError, match=r'\\w'):", "    call()"),
        ("with pytest.raises(SystemExit) as ended:", "    call()", "assert ended.value.code == 2"),
        ("with pytest.raises(StatusError) as caught:", "    call()", "assert caught.value.code is Code.ABORTED"),
    ],
    ids=lambda body: body[0],
)
def test_an_exception_of_any_reason_is_found(body: tuple[str, ...]) -> None:
    assert len(problems(*body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        ("with pytest.raises(GKMError, match='denies access'):", "    call()"),
        ("with pytest.raises(GKMError, match=why):", "    call()"),
        ("with pytest.raises(GKMError) as caught:", "    call()", "assert caught.value.reason is Reason.NO_GPU"),
        ("with pytest.raises(LockBusy):", "    call()"),
        ("with pytest.raises(names.InvalidName):", "    call()"),
        ("with pytest.raises(SystemExit) as ended:", "    call()", "assert ended.value.code == 0"),
        (
            "with pytest.raises(SystemExit) as ended:",
            "    call()",
            "assert ended.value.code == 2",
            "assert 'no node' in capsys.readouterr().err",
        ),
    ],
    ids=lambda body: body[0],
)
def test_an_exception_with_a_reason_is_not(body: tuple[str, ...]) -> None:
    assert problems(*body) == []


@pytest.mark.parametrize(
    "body",
    [
        ("assert done.returncode == 1",),
        ("assert done.returncode != 0",),
        ("assert gkm('plan').returncode == 2",),
        ("assert (done.returncode, done.stdout) == (1, '')",),
        ("assert (done.returncode, done.stderr.count('x')) == (1, 1)",),
        ("assert done.returncode == 1", "assert 'secret' not in done.stderr"),
        ("assert (done.returncode, 'Traceback' in done.stderr) == (1, False)",),
        ("assert done.returncode == 1", "assert done.wait(1) == 1"),
        ("assert other.stderr == 'no'", "assert done.returncode == 1"),
        ("code, _ = rig.ask()", "assert code == 'ABORTED'"),
        ("assert rig.refused(1)[0] == 'ABORTED'",),
        ("rig.refused(1)",),
    ],
    ids=lambda body: body[-1],
)
def test_a_code_of_any_reason_is_found(body: tuple[str, ...]) -> None:
    assert len(problems(*body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        ("assert done.returncode == 0",),
        ("assert done.returncode == -9",),
        ("assert done.returncode == 1", "assert 'no node' in done.stderr"),
        ("assert (done.returncode, 'no node' in done.stderr) == (2, True)",),
        ("assert done.returncode == 1", "assert done.stderr.startswith('error: no node')"),
        ("assert done.returncode == 3", "assert pointer.reason == 'NoGPU'"),
        ("assert done.returncode == 3", "assert json.loads(done.stdout)['ok'] is False"),
        ("assert done.returncode == 2", "return done.stderr"),
        ("code, text = rig.ask()", "assert code == 'ABORTED'", "assert 'another call' in text"),
        ("code, text = rig.refused(1)", "assert (code, 'another call' in text) == ('ABORTED', True)"),
        ("assert process.popen.returncode == 1", "assert 'lease' in process.tail()"),
    ],
    ids=lambda body: body[-1],
)
def test_a_code_with_a_reason_is_not(body: tuple[str, ...]) -> None:
    assert problems(*body) == []
