"""Runs the agent again and again, each time killed one step on the disk later, and looks at what is left.

    python killed_agent.py SCENARIO DIRECTORY

A step is whatever the interpreter audits on a path of ours: open, rename, remove, mkdir, rmdir, chmod, flock. SIGKILL
comes before it. After each kill the invariants of docs/design/node-state.md must hold, and an agent that is started
then must end with what is wanted. The process forks, so that a step costs milliseconds; it has no threads itself.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

from gkm.api.config import Config, Store
from gkm.gpus.values import Inventory
from gkm.hoststate import families, pointers, records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.hoststate.records import VolumeRecord
from gkm.images.pulling import entry
from gkm_agent import main, options
from gkm_agent.capturing.destination import RegistryDestination
from support.agent.fakes import H100, FakeGpus, FakeImages, digest_of

ONE, TWO = digest_of("one"), digest_of("two")
REPOSITORY = "registry.example/team/cache"
STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "fcntl.flock"}
MAX_STEPS = 2000


@dataclass(frozen=True)
class Scenario:
    """What is wanted before and then: {name: digest}; `mounted` are digests that pods use.

    A name that ends with a number is a member of the family of its first part, with the number as its generation.
    `damaged` entries lose their list before the agent is started again.

    With a `stride`, every so many steps are tried: threads side by side make many steps, and no two runs are the same.
    """

    before: dict[str, str]
    then: dict[str, str]
    mounted: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    stride: int = 1


SCENARIOS = {
    "pull": Scenario({}, {"llama": ONE}),
    "two-of-one-image": Scenario({}, {"llama": ONE, "copy": ONE}, stride=4),
    "change": Scenario({"llama": ONE}, {"llama": TWO}, stride=3),
    "change-under-a-pod": Scenario({"llama": ONE}, {"llama": TWO}, (ONE,)),
    "damage": Scenario({"llama": ONE}, {"llama": ONE, "copy": ONE}, damaged=(ONE,), stride=3),
    "generation": Scenario({"qwen-1": ONE}, {"qwen-1": ONE, "qwen-2": TWO}, stride=4),
    "last-generation": Scenario({"qwen-1": ONE, "qwen-2": TWO}, {"qwen-1": ONE}),
    "end-of-family": Scenario({"qwen-1": ONE, "llama": TWO}, {"llama": TWO}),
    "delete": Scenario({"llama": ONE, "other": TWO}, {"other": TWO}),
    "delete-under-a-pod": Scenario({"llama": ONE}, {}, (ONE,)),
}


def membership_of(name: str) -> dict[str, str | int]:
    """Return the fields of a member of a family."""
    family, _, generation = name.partition("-")
    return {"family": family, "generation": int(generation)} if generation.isdigit() else {}


def run(root: Path, wanted: dict[str, str]) -> int:
    """Run the agent once, as `gkm-agent --static … --once` does, over fake registries and GPUs."""
    manifests = root / "manifests"
    manifests.mkdir(exist_ok=True)
    objects = [
        {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": name, "namespace": "ml-apps"},
            "spec": {"image": f"{REPOSITORY}@{digest}", **membership_of(name)},
        }
        for name, digest in wanted.items()
    ]
    (manifests / "all.yaml").write_text("\n---\n".join(json.dumps(value) for value in objects))
    arguments = ["--static", manifests, "--state", root / "state", "--run", root / "run", "--node", "n", "--once"]
    chosen = options.parse([str(argument) for argument in arguments], {})
    config = Config(store=Store(min_free_percent=0))
    outside = main.Dependencies(
        lambda _secrets: FakeImages(chosen.layout),
        FakeGpus(Inventory((H100,))),
        partial(RegistryDestination, config, environment=os.environ),
    )
    return main.work(chosen, config, outside, Event(), Event())


def in_child(action: Callable[[], int], kill_at: int, root: Path) -> int:
    """Return the wait status of a child that acts and is killed before its step number `kill_at` (0: never)."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        if kill_at:
            sys.addaudithook(Killer(kill_at, str(root)))
        status = action()
    except BaseException:  # noqa: BLE001 -- a child of fork must never return into its parent's code
        traceback.print_exc()
        status = 99
    os._exit(status)


class Killer:
    """Kills its process before the n-th step on a path below `root`."""

    def __init__(self, steps: int, root: str) -> None:
        self._left = steps
        self._root = root

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in STEPS:
            return
        if event != "fcntl.flock" and not any(str(value).startswith(self._root) for value in arguments):
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def complain(layout: Layout, scenario: Scenario) -> list[str]:
    """Return which invariants do not hold. A damaged entry that is still there is whole but for its list."""
    wrong = []
    for path in layout.store.iterdir() if layout.store.exists() else ():
        if f"sha256:{path.name}" in scenario.damaged and not (path / entry.FILE_LIST).exists():
            if not (path / entry.CONTENT / "kernel.cubin").exists():
                wrong.append(f"damaged entry {path.name} was taken apart in its place")
            continue
        listed = json.loads((path / entry.FILE_LIST).read_bytes())
        for file in listed["files"]:
            data = (path / entry.CONTENT / file["path"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != file["sha256"]:
                wrong.append(f"entry {path.name} holds a wrong {file['path']}")
    for ref in pointers.refs(layout):
        pointer = pointers.load(layout, ref)
        assert pointer is not None
        if pointer.state is CacheState.READY and not layout.entry(pointer.digest).is_dir():
            wrong.append(f"pointer {ref} is Ready without its entry")
    wrong += lost_families(layout, scenario)
    wrong += [f"mounted entry {digest} is gone" for digest in scenario.mounted if not layout.entry(digest).is_dir()]
    return wrong


def lost_families(layout: Layout, scenario: Scenario) -> list[str]:
    """Return the families of which a pod would get nothing, although a member is Ready before and then."""
    lasting = {name for name in scenario.before if name in scenario.then}
    wrong = []
    for family in {str(fields["family"]) for name in lasting if (fields := membership_of(name))}:
        choice = families.load(layout, CacheRef("ml-apps", family))
        pointer = pointers.load(layout, choice.member) if choice else None
        if pointer is None or pointer.state is not CacheState.READY:
            wrong.append(f"pods of the family {family} get {choice}")
    return wrong


def chosen(layout: Layout) -> dict[str, str]:
    """Return {family: member}."""
    found = (families.load(layout, ref) for ref in families.refs(layout))
    return {choice.ref.name: choice.member.name for choice in found if choice}


def is_whole(layout: Layout, digest: str) -> bool:
    try:
        return entry.find(layout, digest) is not None
    except UnreadableState:
        return False


def unsettled(layout: Layout, scenario: Scenario) -> list[str]:
    """Return how the state differs from what is wanted, after an agent has run to its end."""
    wrong = []
    found = {ref.name: pointers.load(layout, ref) for ref in pointers.refs(layout)}
    digests = {name: pointer.digest for name, pointer in found.items() if pointer and pointer.state == "Ready"}
    if digests != scenario.then:
        wrong.append(f"Ready are {digests}")
    newest = {str(of["family"]): name for name in sorted(scenario.then) if (of := membership_of(name))}
    if chosen(layout) != newest:
        wrong.append(f"chosen are {chosen(layout)}")
    entries = {f"sha256:{path.name}" for path in layout.store.iterdir()}
    if entries != {*scenario.then.values(), *scenario.mounted}:
        wrong.append(f"the store holds {entries}")
    leftovers = [path.name for place in (layout.work, layout.trash) for path in place.iterdir()]
    leftovers += [path.name for path in layout.caches.rglob("*.tmp")]
    return wrong + ([f"left over: {leftovers}"] if leftovers else [])


def tried(scenario: Scenario, root: Path, kills: list[int]) -> tuple[bool, list[str]]:
    """Prepare, kill at each of `kills` in turn, restart; return whether the first one killed, and what is wrong."""
    layout = Layout(root / "state", root / "run")
    root.mkdir()
    in_child(lambda: run(root, scenario.before), 0, root)
    for number, digest in enumerate(scenario.mounted):
        ref = CacheRef("ml-apps", "llama")
        records.save(layout, VolumeRecord(f"csi-{number}", "/t", "pod", "ml-apps", "u", ref, digest, 1, ""))
    for digest in scenario.damaged:
        (layout.entry(digest) / entry.FILE_LIST).unlink()
    killed, wrong = False, []
    for number, kill_at in enumerate(kills):
        status = in_child(lambda: run(root, scenario.then), kill_at, root)
        killed = killed or (number == 0 and os.WIFSIGNALED(status))
        wrong += complain(layout, scenario)
    status = in_child(lambda: run(root, scenario.then), 0, root)
    if status != 0:
        wrong.append(f"the last agent ended with {os.waitstatus_to_exitcode(status)}")
    wrong += complain(layout, scenario) + unsettled(layout, scenario)
    wrong += [f"entry {digest} is still damaged" for digest in scenario.damaged if not is_whole(layout, digest)]
    for directory, _, _ in os.walk(root):
        Path(directory).chmod(0o755)
    shutil.rmtree(root)
    return killed, wrong


def killings(name: str, directory: Path) -> dict[str, object]:
    """Kill at every step until none is left; return what came of it."""
    scenario, generator = SCENARIOS[name], random.Random(name)
    kills, wrong = 0, []
    for step in range(1, MAX_STEPS, scenario.stride):
        killed, found = tried(scenario, directory / str(step), [step, generator.randint(1, step + 5)])
        wrong += [f"killed at {step}: {text}" for text in found]
        if not killed:
            break
        kills += 1
    return {"kills": kills, "wrong": wrong}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(killings(sys.argv[1], Path(sys.argv[2]))))
