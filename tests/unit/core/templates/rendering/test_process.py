"""The children that render: their limits, their end, and their replacement."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gkm.hoststate.frames import frame
from gkm.templates.groups import SAMPLE_GROUP, variables
from gkm.templates.rendering import frames, process
from gkm.templates.rendering.process import RenderingChild, RenderingProcess
from gkm.templates.values import Json, RenderingFailed, RenderingUnavailable
from support.host.memory import memory_of
from support.host.waiting import scaled, until
from support.templates.objects import config_map

SAMPLE = variables(SAMPLE_GROUP)
GOOD = [config_map(value="{{ WF_ID }}")]
ENDLESS = [config_map(value="{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")]


@pytest.fixture
def own() -> Iterator[RenderingProcess]:
    """A renderer of the test's own, because the test breaks its children."""
    renderer = RenderingProcess()
    yield renderer
    renderer.close()


def value_of(renderer: RenderingProcess) -> str:
    return str(renderer.render(GOOD, SAMPLE).objects[0]["value"])


def children(renderer: RenderingProcess) -> list[int]:
    """Return the process ids of idle children, the next one to be used last."""
    return [child._running.pid for child in list(renderer._idle.queue) if child._running]


def ticks(pid: int) -> int:
    """Return the CPU time of a process so far, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_child_has_no_environment_no_files_and_little_memory(own: RenderingProcess) -> None:
    os.environ["GKM_TEST_SECRET"] = "s3cr3t"
    value_of(own)
    (pid,) = children(own)
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    targets = [str(Path(f"/proc/{pid}/fd/{number}").readlink()).partition(":")[0] for number in range(3)]
    assert sorted(path.name for path in Path(f"/proc/{pid}/fd").iterdir()) == ["0", "1", "2"]
    assert targets == ["socket", "/dev/null", "/dev/null"]
    limits = {
        line[:26].strip(): line[26:].split()[:2]
        for line in Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    }
    for none in ("Max open files", "Max processes", "Max file size", "Max core file size"):
        assert limits[none] == ["0", "0"]
    assert int(limits["Max address space"][1]) < 128 << 20
    assert memory_of(pid, "VmHWM") < 64 << 20


def test_a_child_serves_many_requests_and_a_second_one_starts_only_when_needed(own: RenderingProcess) -> None:
    for _ in range(20):
        assert value_of(own) == "sample-workflow"
    assert len(children(own)) == 1


def test_two_threads_render_at_once(own: RenderingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WAIT_SECONDS", scaled(process.WAIT_SECONDS))  # seven requests are before the eighth

    def render(number: int) -> Json:
        values = {**SAMPLE, "WF_ID": f"wf-{number}"}
        return own.render([config_map(value=["{{ WF_ID }}"] * 50)], values).objects[0]

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(render, range(200)))
    assert [result["value"] for result in results] == [[f"wf-{number}"] * 50 for number in range(200)]
    assert len(children(own)) <= process.CHILDREN


def test_a_request_waits_only_so_long_for_a_free_child(own: RenderingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WAIT_SECONDS", 0.01)
    taken = [own._idle.get() for _ in range(process.CHILDREN)]
    with pytest.raises(RenderingUnavailable, match="no rendering process was free"):
        value_of(own)
    for child in taken:
        own._idle.put(child)
    assert value_of(own) == "sample-workflow"


def test_a_child_that_was_killed_between_requests_is_replaced(own: RenderingProcess) -> None:
    value_of(own)
    (first,) = children(own)
    os.kill(first, signal.SIGKILL)
    until(lambda: "Z (zombie)" in Path(f"/proc/{first}/status").read_text(encoding="ascii"), "the child is dead")
    assert value_of(own) == "sample-workflow"
    assert children(own) != [first]


def test_a_child_that_is_killed_during_a_request_fails_only_this_request(own: RenderingProcess) -> None:
    value_of(own)
    (pid,) = children(own)
    before = ticks(pid)
    with ThreadPoolExecutor(1) as threads:
        endless = threads.submit(own.render, ENDLESS, SAMPLE)
        until(lambda: ticks(pid) > before + 5, "the child works on the request")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RenderingUnavailable, match="status -9; try again"):
            endless.result()
    assert value_of(own) == "sample-workflow"


def test_a_child_that_hangs_is_killed_at_the_deadline(own: RenderingProcess) -> None:
    value_of(own)
    (pid,) = children(own)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RenderingUnavailable, match="rendering did not end within"):
        value_of(own)
    assert not Path(f"/proc/{pid}").exists()
    assert value_of(own) == "sample-workflow"


def test_a_child_that_does_not_start_in_time_is_reported_as_such(
    own: RenderingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine; the time of a rendering has not begun."""
    with monkeypatch.context() as patched:
        patched.setattr(process, "START_SECONDS", 0.001)
        with pytest.raises(
            RenderingUnavailable, match=r"the rendering process does not start within 0\.001 s; try again"
        ):
            value_of(own)
    assert value_of(own) == "sample-workflow"


@pytest.mark.parametrize(
    ("end", "error", "message"),
    [
        ("sys.exit(1)", RenderingUnavailable, "status 1"),
        ("os.kill(os.getpid(), 9)", RenderingUnavailable, "status -9"),
        ("os.write(0, b'\\0\\0'); os.kill(os.getpid(), 9)", RenderingUnavailable, "status -9"),
        ("os.write(0, b'\\0\\0\\0\\x09{}'); sys.exit(0)", RenderingUnavailable, "status 0"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", RenderingFailed, "crash"),
        ("os.kill(os.getpid(), signal.SIGPROF)", RenderingFailed, "1 s of CPU time"),
        ("os._exit(3)", RenderingFailed, "80 MiB of memory"),
        ("os.write(0, b'\\xff\\xff\\xff\\xff')", RenderingFailed, "more than"),
        ("os.close(0); time.sleep(60)", RenderingUnavailable, "status -9"),
    ],
)
def test_the_end_of_a_child_is_reported_by_its_cause(
    monkeypatch: pytest.MonkeyPatch, end: str, error: type[Exception], message: str
) -> None:
    program = f"import os, signal, sys, time; os.write(0, bytes(4)); os.read(0, 4); {end}; time.sleep(60)"
    monkeypatch.setattr(process, "_PROGRAM", (sys.executable, "-I", "-c", program))
    child = RenderingChild()
    with pytest.raises(error, match=message):
        child.exchange(b"{}")
    assert child._running is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"objects": [1]}',
        b'{"objects": []}',
        b'{"objects": [{}, {}]}',
        b'{"objects": [{}], "verdicts": [true]}',
        b'{"objects": [{"x": "\\ud800"}]}',
        b'{"objects": [{"x": ' + b"[" * 65 + b"]" * 65 + b"}]}",
        b'{"objects": [{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}]}",
        b'{"objects": [{"x": [' + b"1," * 200_000 + b"1]}]}",
        b'{"error": "' + b"\\u001b[31m" * 5000 + b'"}',
    ],
)
def test_an_answer_that_is_none_is_refused(
    own: RenderingProcess, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(RenderingChild, "exchange", lambda _self, _request: answer)
    with pytest.raises(RenderingFailed) as failed:
        own.render(GOOD, SAMPLE)
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 6000


def test_an_answer_without_a_request_replaces_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = b'{"error": "of another request"}'
    twice = f"os.write(0, {frame(answer) * 2!r})"
    program = f"import os, time; os.write(0, bytes(4)); os.read(0, 9); {twice}; time.sleep(60)"
    monkeypatch.setattr(process, "_PROGRAM", (sys.executable, "-I", "-c", program))
    child = RenderingChild()
    assert child.exchange(b"{}") == answer
    assert child._running
    first = child._running.pid
    assert child.exchange(b"{}") == answer
    assert child._running.pid != first
    child.end()


def test_a_program_that_does_not_start_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for program in ((str(tmp_path / "absent"),), (sys.executable, "-c", "raise SystemExit(7)")):
        monkeypatch.setattr(process, "_PROGRAM", program)
        with pytest.raises(RenderingUnavailable, match=r"does not start|status 7"):
            RenderingChild().exchange(b"{}")


def test_a_request_that_is_too_big_is_not_sent(own: RenderingProcess) -> None:
    with pytest.raises(RenderingFailed, match=str(frames.MAX_REQUEST_BYTES)):
        own.render([config_map(value="x" * frames.MAX_REQUEST_BYTES)], SAMPLE)
    assert children(own) == []


def test_a_result_that_is_too_big_is_refused(own: RenderingProcess) -> None:
    with pytest.raises(RenderingFailed, match=str(frames.MAX_RESULT_BYTES)):
        own.render([config_map(value="{{ 'x' * 1000000 }}")], SAMPLE)
    assert len(children(own)) == 1


def test_nothing_of_a_request_is_left_for_the_next_one(own: RenderingProcess) -> None:
    own.render([config_map(value="{% set leak = WF_ID %}{{ leak }}")], SAMPLE)
    own.render([config_map(value="{{ leak }}")], {"leak": "s3cr3t"})
    for expression in ("{{ leak }}", "{{ result }}", "{{ a }}"):
        with pytest.raises(RenderingFailed, match="is undefined"):
            own.render([config_map(value=expression)], SAMPLE)
    assert own.render([config_map(value="{{ leak | default('none') }}")], {}).objects[0]["value"] == "none"
    assert len(children(own)) == 1


def test_a_closed_renderer_has_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WAIT_SECONDS", 0.01)
    renderer = RenderingProcess()
    value_of(renderer)
    (pid,) = children(renderer)
    renderer.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(RenderingUnavailable, match="no rendering process was free"):
        value_of(renderer)


def test_a_child_ends_when_its_parent_is_killed() -> None:
    script = textwrap.dedent("""
        from gkm.templates.rendering.process import RenderingProcess
        renderer = RenderingProcess()
        renderer.render([{"x": "{{ 1 }}"}], {})
        print(renderer._idle.queue[-1]._running.pid, flush=True)
        input()
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the child has ended")
