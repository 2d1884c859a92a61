"""Kills agents at random, at chosen steps, while the real CSI process publishes and unpublishes on the same state.

    python killed_beside_csi.py DIRECTORY KILLS SEED

After each kill the invariants of docs/design/node-state.md are looked at; now and then, and at the end, an agent lives
on and must come to what is wanted. Prints counters and violations as JSON. Needs root: it mounts, in a namespace of its
own. It has no threads itself, because it forks.
"""

import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import yaml
from gkm.api.config import Store
from gkm.hoststate import pointers, records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.pointers import CacheState
from gkm.mounts import mountinfo
from gkm.mounts.mountinfo import MarkedMount, marked_mounts
from gkm_agent.store import integrity
from support.agent.killed_machine import FILE_BYTES, FILES, PHASES, Killer, Place, ended, forked, kill
from support.host import private_mounts
from support.host.waiting import until

PLAIN = Store(min_free_percent=0, check_interval=0.2)
KEEPING = Store(min_free_percent=0, check_interval=0.2, keep_seconds=3600, max_bytes=5 * FILES * FILE_BYTES + 10)
LATE_SECONDS = 5.0
"""An agent that has not come to its step by then is killed where it is."""
NEEDS_CHANGE = {"download", "extract", "rename", "collect"}
"""Phases that an agent comes to only when something must be fetched or may go."""
KEEPING_SHARE = 0.5
CONVERGED_EVERY = 10
CSI_EVERY = 40
GIVE_UP_SECONDS = 240.0
"""A machine with nothing else to do comes to what is wanted within 5 seconds of the last start; a busy one, later."""


def violations(place: Place) -> list[str]:
    """Return which invariants do not hold, while no agent runs and the CSI process does."""
    layout = place.layout
    wrong = []
    for path in layout.store.iterdir():
        damage = integrity.check(layout, f"sha256:{path.name}")
        if damage is not None:
            wrong.append(f"entry {path.name} is visible and not whole: {damage}")
    for ref in pointers.refs(layout):
        pointer = pointers.load(layout, ref)
        if pointer and pointer.state is CacheState.READY and not layout.entry(pointer.digest).is_dir():
            wrong.append(f"pointer {ref} is Ready without its entry")
    for volume in list(records.volume_ids(layout)):
        try:
            record = records.load(layout, volume)
            if record and not layout.entry(record.digest).is_dir() and records.load(layout, volume) is not None:
                wrong.append(f"the entry of {volume} is gone")
        except UnreadableState as error:
            wrong.append(f"the record of {volume} cannot be read: {error}")
    return wrong + [f"mount of {mount.mark.owner} without a record" for mount in _unrecorded(place)]


def _unrecorded(place: Place) -> list[MarkedMount]:
    """Return mounts that have no record, also when looked at again: an unpublish may have been between the two."""
    found = _mounts(place.kubelet)
    lost = [mount for mount in found if records.load(place.layout, mount.mark.owner) is None]
    return [mount for mount in lost if mount in _mounts(place.kubelet)] if lost else []


def _mounts(kubelet: Path) -> list[MarkedMount]:
    return [mount for mount in marked_mounts(mountinfo.read()) if mount.point.startswith(str(kubelet))]


def recorded(layout: Layout) -> set[str]:
    return {record.digest for record in records.load_all(layout)}


def unsettled(place: Place, wanted: dict[str, str], mounted: set[str]) -> str:
    """Return what is not yet as it is wanted, "" when all is."""
    layout = place.layout
    found = {ref.name: pointers.load(layout, ref) for ref in pointers.refs(layout)}
    ready = {name: pointer.digest for name, pointer in found.items() if pointer and pointer.state is CacheState.READY}
    entries = {f"sha256:{path.name}" for path in layout.store.iterdir()}
    left = [path.name for directory in (layout.work, layout.trash) for path in directory.iterdir()]
    said = _said(place.nodes / "ml-apps" / "node-1.yaml")
    if ready != wanted:
        return f"Ready are {sorted(ready)}"
    if not set(wanted.values()) <= entries <= {*wanted.values(), *mounted}:
        return f"the store holds {len(entries)} entries"
    if left:
        return f"left over are {left}"
    return "" if {name: said.get(name) for name in wanted} == dict.fromkeys(wanted, "Ready") else f"said is {said}"


def _said(path: Path) -> dict[str, str]:
    try:
        return {name: cache["state"] for name, cache in yaml.safe_load(path.read_text())["status"]["caches"].items()}
    except FileNotFoundError:
        return {}


def converged(place: Place, wanted: dict[str, str]) -> tuple[float, str]:
    """Let an agent work; return after how many seconds all was as wanted, and what was not in the end."""
    began = time.monotonic()
    mounted = recorded(place.layout)
    agent = place.agent(PLAIN, None)
    why, ended_as = "", ""

    def finished() -> bool:
        nonlocal why, ended_as
        why = unsettled(place, wanted, mounted)
        pid, status = os.waitpid(agent, os.WNOHANG)
        ended_as = f"the agent ended with {os.waitstatus_to_exitcode(status)}" if pid else ""
        return bool(ended_as) or not why

    try:
        until(finished, "all to be as it is wanted", GIVE_UP_SECONDS)
    except TimeoutError as late:
        why = f"{late}; {why}; the agent is at\n{place.stacks(agent)}"
    took = time.monotonic() - began
    if ended_as:
        return took, f"{ended_as}; {why}"
    kill(agent)
    return took, why


def run(root: Path, kills: int, seed: int) -> dict[str, object]:
    """Kill so often; return what was counted and what was wrong."""
    generator = random.Random(seed)
    place = Place(root, generator)
    place.start_registry()
    place.start_csi()
    stop, said = root / "stop", root / "kubelet.json"
    kubelet = forked(lambda: _kubelet(place, stop, seed, said))
    hit: Counter[str] = Counter()
    wrong: list[str] = []
    seconds: list[float] = []
    for number in range(1, kills + 1):
        wanted = place.want()
        phase = list(PHASES)[number % len(PHASES)]
        store = KEEPING if phase not in NEEDS_CHANGE and generator.random() < KEEPING_SHARE else PLAIN
        pattern, steps = PHASES[phase]
        agent = place.agent(store, Killer(root, pattern, generator.randint(1, steps)))
        if ended(agent, LATE_SECONDS):
            hit[phase] += 1
        else:
            kill(agent)
            hit["by time"] += 1
        wrong += [f"kill {number} ({phase}): {text}" for text in violations(place)]
        if number % CSI_EVERY == 0:
            place.start_csi()
        if number % CONVERGED_EVERY == 0:
            took, why = converged(place, wanted)
            seconds.append(took)
            if why:
                wrong.append(f"after kill {number}: {why}")
                break
    stop.touch()
    os.waitpid(kubelet, 0)
    if not wrong:
        took, why = converged(place, wanted)
        seconds.append(took)
        wrong += ([f"at the end: {why}"] if why else []) + violations(place)
    pods = json.loads(said.read_text())
    assert place.csi is not None
    place.csi.kill()
    return {
        "seed": seed,
        "kills": sum(hit.values()),
        "phases": dict(sorted(hit.items())),
        "kubelet": pods["counts"],
        "converged_seconds": [round(one, 3) for one in seconds],
        "violations": wrong + pods["violations"],
    }


def _kubelet(place: Place, stop: Path, seed: int, said: Path) -> None:
    from support.agent import killed_kubelet  # noqa: PLC0415 -- gRPC has threads, and whoever forks must not

    kubelet = killed_kubelet.Kubelet(place.layout, place.kubelet, place.socket, place.digests, stop, seed)
    said.write_text(json.dumps(kubelet.run()))


if __name__ == "__main__":
    private_mounts.enter()
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
