"""The pods that people copy: those of deploy/samples and of README."""

from support.docs.sample_pods import pods

GPU = "nvidia.com/gpu"


def test_the_pod_of_readme_is_that_of_the_samples() -> None:
    sample, readme = pods()
    assert sample == readme


def test_a_sample_pod_requests_a_gpu() -> None:
    pod = pods()[0]
    asked = [container.get("resources", {}).get("limits", {}).get(GPU) for container in pod["spec"]["containers"]]
    assert asked == [1]
