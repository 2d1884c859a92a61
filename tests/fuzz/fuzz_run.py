"""`make fuzz [TARGET=name] [SECONDS_EACH=20]`: atheris on every target, each in its own process, with its seeds.

A finding ends with the input that caused it; put it into the corpus, and a test beside the parser.
"""

import os
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
BUILD = Path("build") / "fuzz"


def main() -> int:
    """Run one target here (`run.py NAME --here`), or all of them, each in a child."""
    if sys.argv[2:] == ["--here"]:
        return _fuzz(sys.argv[1])
    from fuzz_targets import TARGETS  # noqa: PLC0415 -- in the child it must be imported under instrumentation

    seconds = os.environ.get("SECONDS_EACH", "20")
    failed = []
    for name in [os.environ["TARGET"]] if os.environ.get("TARGET") else sorted(TARGETS):
        print(f"fuzz: {name} for {seconds} s", flush=True)
        if subprocess.run([sys.executable, __file__, name, "--here"], check=False).returncode:
            failed.append(name)
    print(f"fuzz: findings in {', '.join(failed)}" if failed else "fuzz: no finding")
    return 1 if failed else 0


def _fuzz(name: str) -> int:
    import atheris  # noqa: PLC0415 -- only here: it is not for every platform

    with atheris.instrument_imports(include=["gkm", "gkm_cli"]):
        from fuzz_targets import MUTATORS, TARGETS, quiet  # noqa: PLC0415

    found = BUILD / name
    found.mkdir(parents=True, exist_ok=True)
    seeds = CORPUS / name
    seconds = os.environ.get("SECONDS_EACH", "20")
    options = [f"-max_total_time={seconds}", "-max_len=65536", "-rss_limit_mb=1024", "-timeout=10", "-verbosity=0"]
    corpora = [str(found), *([str(seeds)] if seeds.exists() else [])]
    # `atheris.Mutate` is another function once Fuzz has begun, so it is looked up when it is called.
    changed = (
        {"custom_mutator": MUTATORS[name](lambda data, most: atheris.Mutate(data[:most], most))}
        if name in MUTATORS
        else {}
    )
    options += ["-print_final_stats=1", f"-artifact_prefix={found}-"]
    atheris.Setup([name, *options, *corpora], quiet(TARGETS[name]), **changed)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
