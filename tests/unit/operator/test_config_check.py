"""A configuration is checked without a command as well: it is the same file for both."""

from pathlib import Path

import pytest
import yaml
from gkm.api.config import parse
from gkm.images.signing.keys import PrivateKey, encrypted
from support.operator.command_line import called
from support.sigstore.key_signatures import SigningKey


def checked(*arguments: str) -> tuple[int, str]:
    """Call gkm-operator; return exit code and output."""
    code, said = called(*arguments)
    return code, said.strip()


@pytest.mark.parametrize("check_first", [True, False])
def test_a_file_is_checked_without_a_command(tmp_path: Path, *, check_first: bool) -> None:
    path = tmp_path / "config.yaml"
    words = ["--check-config", f"--config={path}"] if check_first else [f"--config={path}", "--check-config"]
    path.write_text("store: {maxBytes: 1}\n", encoding="utf-8")
    assert checked(*words) == (0, "gkm-operator: the configuration is good")
    path.write_text("store: {maxBites: 1}\n", encoding="utf-8")
    code, said = checked(*words)
    assert (code, said.splitlines()) == (2, [said])
    assert "unknown field `maxBites` - at `$.store`" in said


def test_a_check_runs_nothing() -> None:
    code, said = checked("--check-config", "admission")
    assert (code, said.splitlines()[-1]) == (2, "gkm-operator: error: unrecognized arguments: admission")


def test_without_a_check_the_command_is_needed() -> None:
    code, said = checked("--config=anything")
    assert code == 2
    assert "required: command" in said


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    code, said = checked("--check-config", f"--config={path}")
    assert code == (0 if "the configuration is good" in said else 2)
    for line in said.splitlines():
        assert code == 0 or line.startswith(f"gkm-operator: configuration {path}: ")
    return said.splitlines()


def test_a_mistake_inside_a_configmap_is_found_and_a_configmap_without_ours_is_none(tmp_path: Path) -> None:
    form = "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: x}}, data: {{{}: 'verification: {{mode: on}}'}}}}"
    (wrong,) = problems(tmp_path, form.format("config.yaml"))
    assert "'on' - at `$.verification.mode`; allowed is enforce or off or warn" in wrong
    (without,) = problems(tmp_path, form.format("other.yaml"))
    assert "has no text `config.yaml`" in without


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("{keys: [abc]}", ".keys[0]", "'abc' cannot be read"),
        ("{keys: ['-----BEGIN PUBLIC KEY-----']}", ".keys[0]", "no PEM public key"),
        ("{keys: [/dev/null]}", ".keys[0]", "no PEM public key"),
        ("{identities: [{issuer: i, subject: s}], trustedRoot: root.json}", ".trustedRoot", "'root.json' cannot"),
        ("{identities: [{issuer: i, subject: s}], trustedRoot: /dev/null}", ".trustedRoot", "/dev/null"),
        ("{identities: [{issuer: i, subjectRegExp: '('}], trustedRoot: /f}", ".identities[0]", "no regular expression"),
        ("{image: [a.example], keys: [/k]}", "", "`images` may be meant"),
        ("{identities: [{caFile: ca.crt, subject: s}]}", ".identities[0].caFile", "'ca.crt' cannot be read"),
        ("{identities: [{caFile: /dev/null, subject: s}]}", ".identities[0].caFile", "no PEM certificates"),
        ("{keys: [/k], require: al}", ".require", "allowed is all or any or a number; `all` may be meant"),
        ("{keys: [/k], tlog: 'yes'}", ".tlog", "allowed is ignored or optional or required"),
        ("{keys: [/k], images: ['https://r.example/*']}", ".images[0]", "without a scheme"),
        ("{keys: [/k], images: ['r.example/team/x:1']}", ".images[0]", "without tag and digest"),
        ("{keys: [/k], images: ['r.example/Team/*']}", ".images[0]", "repositories are of a-z"),
        ("{keys: [/k], images: ['R.example/*']}", ".images[0]", "'R.example' is not a registry host"),
        ("{keys: [/k], images: ['team/*']}", ".images[0]", "'team' is not a registry host"),
        ("{keys: [/k], images: ['r.example:443/*']}", ".images[0]", "write 'r.example'"),
        ("{keys: [/k], images: ['']}", ".images[0]", "is not a registry host"),
        ("{keys: [/k], namespaces: [ML]}", ".namespaces[0]", "'ML'"),
    ],
)
def test_an_error_in_a_policy_is_reported_with_file_path_and_a_suggestion(
    tmp_path: Path, text: str, where: str, words: str
) -> None:
    (said,) = problems(tmp_path, f"verification: {{policies: [{text}]}}")
    assert f"`$.verification.policies[0]{where}`" in said
    assert words in said


def test_all_errors_about_registries_are_reported(tmp_path: Path) -> None:
    text = (
        "registries: {allow: ['https://r.example', '*.corp.example'], hosts: {'https://a': {}, b.example: {caFile: x}}}"
    )
    told = problems(tmp_path, text)
    assert [where in line for where, line in zip(("allow[0]", "https://a", "caFile"), told, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("signing", "where", "words"),
    [
        ("{keyFile: /dev/null}", "keyFile", "'/dev/null' is no PEM private key"),
        ("{keyless: true, trustedRoot: /dev/null}", "trustedRoot", "/dev/null"),
    ],
)
def test_the_files_that_sign_captures_are_read(tmp_path: Path, signing: str, where: str, words: str) -> None:
    (said,) = problems(tmp_path, f"capture: {{signing: {signing}}}")
    assert f"`$.capture.signing.{where}`" in said
    assert words in said


def test_a_private_key_is_accepted_without_its_password(tmp_path: Path) -> None:
    key = tmp_path / "cosign.key"
    key.write_bytes(encrypted(PrivateKey.new(), b"secret"))
    said = problems(tmp_path, f"capture: {{signing: {{keyFile: {key}}}}}")
    assert said == ["gkm-operator: the configuration is good"]


def in_configmap(text: str, files: dict[str, str]) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": text} | files})


def test_files_of_the_configmap_are_read_and_missing_ones_are_mistakes(tmp_path: Path) -> None:
    text = """
        verification: {policies: [{keys: [/etc/gkm/good.pub, /etc/gkm/bad.pub, /etc/gkm/none.pub, /etc/gkm/more/k]}]}
        registries: {hosts: {r.example: {caFile: /etc/gkm/ca.crt}}}
        """
    files = {"good.pub": SigningKey().public_pem.decode(), "bad.pub": "no key"}
    bad, none, authority = problems(tmp_path, in_configmap(text, files))
    assert "public key '/etc/gkm/bad.pub' is no PEM public key - at `$.verification.policies[0].keys[1]`" in bad
    assert "the ConfigMap has no text 'none.pub' - at `$.verification.policies[0].keys[2]`" in none
    assert "the ConfigMap has no text 'ca.crt' - at `$.registries.hosts['r.example'].caFile`" in authority


def test_possible_globs_and_keys_are_accepted(tmp_path: Path) -> None:
    key = tmp_path / "cosign.pub"
    key.write_bytes(SigningKey().public_pem)
    images = "['*', r.example, 'r.example/team/*', '*.example:5000/x', '[fd00::1]:5000/*', docker.io/*, 'localhost/?x']"
    text = f"verification: {{policies: [{{keys: [{key}], images: {images}, namespaces: ['ml-*', 'team-[ab]']}}]}}"
    assert problems(tmp_path, text) == ["gkm-operator: the configuration is good"]


def test_files_of_pods_are_listed_where_they_are_not(tmp_path: Path) -> None:
    said = problems(tmp_path, "verification: {policies: [{keys: [/nowhere/cosign.pub]}]}")
    assert said[-1] == "gkm-operator: not checked, because it is not on this machine: /nowhere/cosign.pub"
    assert said[0] == "gkm-operator: the configuration is good"


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("{hyperNodes: {enabled: true}, providers: []}", "providers", "no provider is named"),
        ("{providers: [{name: infiniband}]}", "providers", "names and selects no node"),
        ("{levels: [{name: rack}, {name: leaf}]}", "levels[1]", "no provider knows level 'leaf'"),
    ],
)
def test_a_topology_that_can_never_be_written_is_a_mistake(tmp_path: Path, text: str, where: str, words: str) -> None:
    (found,) = problems(tmp_path, f"topology: {text}")
    assert words in found
    assert f"at `$.topology.{where}`" in found


def test_the_sample_of_a_topology_has_no_mistake(tmp_path: Path) -> None:
    sample = Path(__file__).parents[3] / "deploy" / "samples" / "topology.yaml"
    text = next(iter(yaml.load_all(sample.read_text(encoding="utf-8"), yaml.CSafeLoader)))["data"]["config.yaml"]
    assert parse(text).topology.hyper_nodes.enabled
    assert problems(tmp_path, text) == ["gkm-operator: the configuration is good"]
