"""Every input that fuzzing found runs as a test: it gives a result, or an error that a person can read."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"
INPUTS = sorted(path for path in (FUZZ / "corpus").glob("*/*") if path.is_file())


def target(name: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    monkeypatch.syspath_prepend(FUZZ)
    targets = import_module("fuzz_targets")
    found: Callable[[bytes], None] = targets.quiet(targets.TARGETS[name])
    return found


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_input_of_the_corpus_is_answered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert target(path.parent.name, monkeypatch)(path.read_bytes()) is None


@pytest.mark.parametrize("name", ["bundle", "legacy"])
def test_the_seeds_that_are_signed_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target("signature", monkeypatch)
    images = import_module("fuzz_images")
    seed = (FUZZ / "corpus" / "signature" / name).read_bytes()
    assert images._TRUST.evaluate(images.signature_in(seed), images.SIGNED).ok


@pytest.mark.parametrize(
    "change", [lambda data: data[:-3], lambda data: data.replace(b"aaaaaaaa", b"bbbbbbbb"), bytes.upper]
)
def test_a_change_of_a_seed_that_is_signed_does_not_count(
    change: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = target("signature", monkeypatch)
    assert run(change((FUZZ / "corpus" / "signature" / "legacy").read_bytes())) is None


def test_every_target_has_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    target("tar", monkeypatch)
    assert {path.parent.name for path in INPUTS} >= set(import_module("fuzz_targets").TARGETS)


@pytest.mark.parametrize("name", ["tar", "manifest", "labels", "signature", "reference"])
def test_a_mutator_respects_its_bound_for_any_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target(name, monkeypatch)
    mutate = import_module("fuzz_targets").MUTATORS[name](lambda data, most: (data + b"x")[:most])
    data = [b"", b"\xff" * 700, *(path.read_bytes() for path in INPUTS if path.parent.name == name)]
    changed = {mutate(one, 4096, seed) for one in data for seed in range(60)}
    assert max(map(len, changed)) <= 4096
    assert len(changed) > 60
