"""Any file causes a plan, a refusal, or an error of one line: never a traceback."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.plan_files import Json, PlanWorkspace, node, pod, racks, run, run_plan
from support.examples import examples

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Run", "List", "gkm.io/v1alpha1", "Node", "8", "8e9", "\x1b[2J", "---", "~"])
)
KEYS = st.sampled_from(["kind", "apiVersion", "metadata", "name", "spec", "items", "gpus", "groupGPUs", "scopes", "x"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
SPECS = st.dictionaries(
    st.sampled_from(
        ["gpus", "gpusPerPod", "groupGPUs", "spares", "malleability", "selector", "scopes", "policy", "tolerations"]
    ),
    VALUES | st.integers(1, 64),
    max_size=4,
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> PlanWorkspace:
    return PlanWorkspace(tmp_path_factory.mktemp("hostile"))


def answered(*arguments: object) -> None:
    done = run_plan(*arguments)
    assert done.returncode in (0, 1, 2, 3)
    if done.returncode in (0, 3):
        assert done.stderr == ""
        assert done.stdout
    else:
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert done.stderr.isprintable() or done.stderr[:-1].isprintable()


@settings(max_examples=examples(150))
@given(value=VALUES)
def test_any_json_as_a_run(workspace: PlanWorkspace, value: object) -> None:
    answered("--nodes", workspace.nodes, "--run", workspace.write("any.json", value))


@settings(max_examples=examples(150))
@given(text=st.text(max_size=60) | st.text("-:[]{}&*!|>'\"% \n\tab1,?", max_size=60))
def test_any_text_as_a_run(workspace: PlanWorkspace, text: str) -> None:
    path = workspace.directory / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    answered("--nodes", workspace.nodes, "--run", path)


@settings(max_examples=examples(150))
@given(raw=st.binary(max_size=60))
def test_any_bytes_as_a_run_a_plan_or_nodes(workspace: PlanWorkspace, raw: bytes) -> None:
    path = workspace.directory / "any.bin"
    path.write_bytes(raw)
    answered("--nodes", workspace.nodes, "--run", path)
    answered("--nodes", workspace.nodes, "--run", workspace.run, "--standing", path)
    answered("--nodes", path, "--run", workspace.run)


@settings(max_examples=examples(150))
@given(spec=SPECS)
def test_any_fields_of_a_run(workspace: PlanWorkspace, spec: Json) -> None:
    answered("--nodes", workspace.nodes, "--run", workspace.write("spec.json", run(**spec)), "-o", "json")


@settings(max_examples=examples(100))
@given(change=VALUES, path=st.sampled_from(["hash", "gpus", "groups", "request", "metrics", "policy"]))
def test_any_former_plan(workspace: PlanWorkspace, change: object, path: str) -> None:
    _, plan = workspace.plan()
    answered(
        "--nodes",
        workspace.nodes,
        "--run",
        workspace.run,
        "--standing",
        workspace.write("s.json", plan | {path: change}),
    )


@settings(max_examples=examples(100))
@given(change=VALUES, path=st.sampled_from(["hash", "gpus", "groups", "request", "metrics", "policy"]))
def test_any_plan_to_unfold(workspace: PlanWorkspace, change: object, path: str) -> None:
    _, plan = workspace.plan()
    file = workspace.write("unfold.json", plan | {path: change})
    for form in ("list", "json", "hostfile"):
        done = run_plan("unfold", file, "-o", form)
        assert done.returncode in (0, 1, 2)
        assert (done.stderr.count("\n"), done.stdout == "") == ((0, False) if done.returncode == 0 else (1, True))


@settings(max_examples=examples(100))
@given(scope=st.text(max_size=20), selector=st.text(max_size=20), name=st.text(max_size=20), gpus=st.integers())
def test_any_text_in_flags(workspace: PlanWorkspace, scope: str, selector: str, name: str, gpus: int) -> None:
    for flags in (("--scope", scope), ("--selector", selector), ("--name", name), ("--flavor", name)):
        answered("--nodes", workspace.nodes, f"--total-gpus={gpus % 100 + 1}", f"{flags[0]}={flags[1]}", "--pod=1")
    answered("--nodes", workspace.nodes, f"--total-gpus={gpus}")


@settings(max_examples=examples(60))
@given(items=st.lists(VALUES, max_size=4), gpus=st.integers(0, 2000), block=st.text("<>&\"' ab", max_size=20))
def test_any_nodes_in_a_picture(workspace: PlanWorkspace, items: list[object], gpus: int, block: str) -> None:
    nodes = {"kind": "List", "items": [*items, node("odd", "rack9", block, gpus=gpus), *racks(1)]}
    for form in ("svg", "html"):
        answered("--nodes", workspace.write("drawn.json", nodes), "--run", workspace.run, "-o", form)


@settings(max_examples=examples(100))
@given(items=st.lists(VALUES, max_size=4), gpus=SCALARS)
def test_any_items_among_nodes_and_pods(workspace: PlanWorkspace, items: list[object], gpus: object) -> None:
    nodes = {"kind": "List", "items": [*items, node("odd", "rack0", gpus=gpus), *racks(1)]}
    answered("--nodes", workspace.write("nodes.json", nodes), "--run", workspace.run)
    pods = {"kind": "List", "items": [*items, pod("p", "gpu-0-0", 8)]}
    answered("--nodes", workspace.nodes, "--pods", workspace.write("pods.json", pods), "--run", workspace.run)
