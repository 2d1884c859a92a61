"""The child process that reads GPUs: it may hang, crash or print invalid data, and the agent gets a value."""

import json
import sys
from pathlib import Path

import msgspec
import pytest
from gkm.gpus import inventory
from gkm.gpus.inventory import InventoryReader
from gkm.gpus.values import Gpu, GpuFabricInfo, Inventory, printable
from support.fakes.nvml_library import H100
from support.gpus.inventories import Reading


def test_the_reading_process_never_loads_the_driver_itself(reading: Reading) -> None:
    reading(H100)

    assert "libnvidia-ml" not in Path("/proc/self/maps").read_text()


def test_a_hanging_driver_times_out(reading: Reading) -> None:
    found = reading(H100, errors={"nvmlInit": "HANG"}, timeout=0.3)

    assert found.unreadable
    assert "no answer within" in found.errors[0]


def test_a_driver_that_crashes_costs_its_own_process_only(reading: Reading) -> None:
    found = reading({**H100, "errors": {"nvmlDeviceGetName": "CRASH"}})

    assert found.errors == ("GPUs cannot be read: the probe ended with -11",)


def test_an_interpreter_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    assert InventoryReader().read().errors == (
        "GPUs cannot be read: the probe does not start: No such file or directory",
    )


def test_while_a_child_cannot_be_killed_no_second_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        returncode = None

        def poll(self) -> None:
            return None

    reader = InventoryReader()
    monkeypatch.setattr(reader._command, "_process", Stuck())

    assert reader.read().errors == ("GPUs cannot be read: the probe still hangs in the kernel since an earlier run",)


GPU = {"index": 0, "backend": "cuda"}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{",
        json.dumps({"gpus": [{**GPU, "index": -1}]}).encode(),
        json.dumps({"gpus": [{**GPU, "index": 1 << 40}]}).encode(),
        json.dumps({"gpus": [{**GPU, "model": "a\nb"}]}).encode(),
        json.dumps({"gpus": [{**GPU, "model": "x" * 1000}]}).encode(),
        json.dumps({"gpus": [{**GPU, "memory_mib": "much"}]}).encode(),
        json.dumps({"gpus": [GPU, GPU]}).encode(),
        json.dumps({"gpus": [{**GPU, "index": index % 1024} for index in range(2000)]}).encode(),
        json.dumps({"errors": ["x"] * 100}).encode(),
        b"[" * 100_000,
        b'{"x":' + b"[" * 100_000,
    ],
)
def test_an_invalid_probe_output_is_refused(answer: bytes) -> None:
    found = inventory.decode(answer)

    assert found.unreadable
    assert len(found.errors[0]) <= 256


def test_a_reading_survives_json() -> None:
    whole = Inventory((Gpu(3, "cuda", fabric=GpuFabricInfo("a", 1, "b", "c", "d")),), ("error",))

    assert inventory.decode(msgspec.json.encode(whole)) == whole


def test_too_much_output_is_cut_off(monkeypatch: pytest.MonkeyPatch, reading: Reading) -> None:
    monkeypatch.setattr(inventory, "MAX_OUTPUT", 10)

    assert "more than 10 bytes" in reading(H100).errors[0]


def test_a_text_is_made_printable_and_bounded() -> None:
    assert printable("a\x00é\n") == "a???"
    assert printable("x" * 300) == "x" * 253 + "..."
