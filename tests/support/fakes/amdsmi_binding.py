"""AMD's GPUs for tests: what a process needs to import `amdsmi` and to find GPUs behind it."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Gpu = Mapping[str, Any]

MI300X: Gpu = {
    "market_name": "AMD Instinct MI300X",
    "target_graphics_version": "gfx942",
    "driver_version": "6.10.5",
    "memory_bytes": 196592 << 20,
}
RX7900: Gpu = {
    "market_name": "Radeon RX 7900 XTX",
    "target_graphics_version": "gfx1100",
    "driver_version": "6.10.5",
    "memory_bytes": 24560 << 20,
}
DIRECTORY = Path(__file__).parent / "amdsmi"


def environment(
    directory: Path, gpus: Sequence[Gpu], *, errors: Mapping[str, str] | None = None, failing_import: str = ""
) -> dict[str, str]:
    """Describe a machine in `directory`/amdsmi.json; return the variables a process needs to see it."""
    description = directory / "amdsmi.json"
    machine = {
        "errors": dict(errors or {}),
        "import": failing_import,
        "gpus": [
            {"uuid": f"6eff74a1-0000-1000-80a7-{index:012x}", "bdf": f"0000:{index + 0x43:02x}:00.0", **gpu}
            for index, gpu in enumerate(gpus)
        ],
    }
    description.write_text(json.dumps(machine))
    paths = [str(DIRECTORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": ":".join(paths), "GKM_FAKE_AMDSMI": str(description)}
