# Every target works from a fresh clone: what it needs, it makes first.
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONPATH := tests
# Every process of a test would compile our sources again, and every worker the tests.
unexport PYTHONDONTWRITEBYTECODE
# One order, so that two runs can be compared; SEED=default shuffles anew.
SEED ?= 1
PYTEST := $(BIN)/python -m pytest -q --randomly-seed=$(SEED)
# Each worker imports all tests: 7 CPU seconds, 18 in a fresh clone, where it also compiles them.
XDIST ?= -n 3
# VERSION, or TAG (v1.2.3) in CI, and what else a release reads of the environment: a recipe never has their text, which
# make and the shell would expand; whoever may push a tag would run commands by its name.
RELEASE := $(BIN)/python scripts/release.py
# Building images needs root; everything else needs no more than the files.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo --preserve-env)
# Tests with partners wait more than they compute. Each worker has a cluster, one of them the node
# of this machine (tests/support/host/workers.py).
CLUSTER_XDIST ?= -n 3 --dist loadscope --no-loadscope-reorder
# The partners that `make peers` builds: those of one tier of tests (tests/support/peers/tiers.py).
TIER ?= partners
# sudo has another PATH and HOME: partners that are built stay where the user has them.
TESTBED = env PYTHONPATH=tests GKM_PEERS_CACHE="$${GKM_PEERS_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/gkm/peers}"

# Programs of other architectures, which the images of a release and the tests on arm64 need.
QEMU_USER := qemu-aarch64-static:qemu-user-static
ARM64 := $(QEMU_USER) qemu-system-aarch64:qemu-system-arm

.PHONY: help machine setup toolchain static check format generate manifests docs lock test test-partners test-all arm64 demo demo-cluster peers images version release verify-release publish \
  github-release e2e bench gpu gpu-bundle fuzz clean

help: ## what can be done here
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.done ## .venv with everything installed, ours in editable form

$(VENV)/.done: requirements.lock pyproject.toml scripts/setup
	@scripts/setup $(PYTHON) $(VENV)

machine:
	@scripts/machine $(PYTHON)

toolchain: setup
	@scripts/go $(VENV)

static: setup ## format, lint, types and layers
	@$(BIN)/ruff format --check --quiet . || { echo "run 'make format'"; exit 1; }
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy core agent csi operator cli scripts hack tests bench
	$(BIN)/lint-imports --config pyproject.toml | tail -1

check: static ## static checks, unit and contract tests: six minutes
	@GKM_TIER=check $(PYTEST) $(XDIST) -m "not processes and not apiserver and not partners and not heavy" tests/unit tests/contract

format: setup ## rewrite sources in the one format
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

generate: setup ## crds/, the chart, man pages and protobuf modules from their sources
	@$(BIN)/python scripts/generate.py

manifests: setup ## build/deploy: what kubectl and kustomize apply, rendered from the chart (builds Helm once, with Go)
	@$(BIN)/python scripts/manifests.py

docs: setup ## the site, in site/: python3 -m http.server --directory site
	@NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

lock: ## requirements.lock and requirements/*.lock from pyproject.toml (needs uv)
	@scripts/lock

peers: toolchain ## build the real partners of TIER=test, partners or all once, into a cache outside the repository
	@$(BIN)/python -m support.peers.build --tier $(TIER)
	if [ $(TIER) != test ]; then $(BIN)/python -m support.triton.installation; fi
	if [ $(TIER) = all ]; then $(BIN)/python -m support.torch.installation; fi

images: setup ## our container images, built once by the Dockerfiles, into the same cache (root)
	@$(AS_ROOT) scripts/debian-packages
	$(AS_ROOT) env PYTHONPATH=tests $(BIN)/python -m support.product_images.build

version: setup ## state VERSION=1.2.3 everywhere, for a commit before its release (builds Helm once)
	@$(RELEASE) version

release: setup ## dist/release of VERSION=1.2.3: images, chart, SBOMs, provenance, checksums (root; PLATFORMS=, BASE=local)
	@$(AS_ROOT) scripts/debian-packages $(if $(value PLATFORMS),$(QEMU_USER))
	$(AS_ROOT) env PYTHONPATH=tests $(RELEASE) build --platforms "$${PLATFORMS:-}" --base "$${BASE:-}" $(if $(value DIRTY),--dirty)

verify-release: setup ## whether all in dist/release agrees with VERSION=1.2.3
	@$(RELEASE) verify --platforms "$${PLATFORMS:-}" $(if $(value TRIAL),--trial)

publish: setup ## store the images of dist/release in REGISTRY=registry.example/team, signed (KEY=cosign.key)
	@if [ -n "$${REGISTRY_TOKEN:-}" ]; then
	  printf %s "$$REGISTRY_TOKEN" | $(BIN)/gkm login "$${REGISTRY%%/*}" -u "$$REGISTRY_USER" --password-stdin
	fi
	$(RELEASE) publish --platforms "$${PLATFORMS:-}" --registry "$${REGISTRY:-}" --key "$${KEY:-}" $(if $(value TRIAL),--trial)

github-release: setup ## the files of dist/release as a release of the tag on GitHub (its own gh; GH_TOKEN)
	@$(RELEASE) github --platforms "$${PLATFORMS:-}" --key "$${KEY:-}"

test: machine toolchain ## set-up, check, our processes and a real API server, which it builds meanwhile: 25 minutes on two cores, then twelve
	@mkdir -p build
	# Both halves wait more than they compute, so they run beside each other; the words of the second follow the first's.
	# A process group of its own: bash makes its other background processes ignore Ctrl-C.
	set -m
	{ $(BIN)/python -m support.peers.build --tier test
	  export GKM_TIER=test
	  exec $(PYTEST) $(CLUSTER_XDIST) -m "(processes or apiserver) and not heavy" tests/contract tests/processes tests/apiserver
	} > build/test-processes.log 2>&1 &
	processes=$$!
	set +m
	trap 'kill -INT -- "-$$processes" && wait "$$processes" || true' EXIT
	$(MAKE) --no-print-directory check
	tail -n +1 -f --pid="$$processes" build/test-processes.log
	trap - EXIT
	wait "$$processes"

test-partners: ## kubelet, containerd, cosign, registries, Triton, our images; attacks and kills (root): half an hour
	@$(AS_ROOT) scripts/debian-packages skopeo
	$(MAKE) --no-print-directory peers TIER=partners
	$(AS_ROOT) $(TESTBED) GKM_TIER=partners $(BIN)/python -m support.product_images.build --if-possible
	# Named folders: each worker would import 16,000 other tests, whose objects stay in its memory.
	$(AS_ROOT) $(TESTBED) GKM_TIER=partners $(PYTEST) $(CLUSTER_XDIST) -m "partners and not heavy" tests/contract tests/apiserver tests/partners tests/hostile tests/crash tests/e2e

test-all: export GKM_HYPOTHESIS := full
test-all: export SEED := default
test-all: ## both, with all examples and in random order; Kueue, Kyverno, torch, releases, soak, arm64 (root): hours
	@$(MAKE) --no-print-directory test test-partners
	$(AS_ROOT) scripts/debian-packages $(ARM64)
	$(MAKE) --no-print-directory peers TIER=all
	$(AS_ROOT) $(TESTBED) GKM_TIER=all $(PYTEST) $(CLUSTER_XDIST) -m heavy tests

arm64: setup ## our images, the demo and tests on emulated arm64 (root): hours; a part of it with ONLY=contract
	@$(AS_ROOT) scripts/debian-packages $(ARM64)
	$(AS_ROOT) $(TESTBED) GKM_TIER=all $(PYTEST) -rP -m heavy $${ONLY:+-k "$$ONLY"} tests/e2e/arm64 tests/e2e/product_images/test_image_contents.py

demo: setup ## one cache from a registry into a mount on this machine, no cluster
	@PYTHONPATH=tests:scripts $(BIN)/python -m demo.local

demo-cluster: peers ## the same in a real Kubernetes with a kubelet and containerd (root)
	@scripts/debian-packages
	PYTHONPATH=tests:scripts $(BIN)/python -m demo.cluster

e2e: peers ## only the tests that need a real node (root)
	@scripts/debian-packages
	$(BIN)/python -m support.product_images.build --if-possible
	$(PYTEST) -m "not heavy" tests/e2e

bench: peers ## figures into build/bench/*.json; one of them with BENCH=name; SMALLEST=1 only shows that it runs
	@scripts/debian-packages skopeo
	$(BIN)/python bench/run.py $(if $(SMALLEST),--smallest) $(BENCH)

gpu: ## GKM's caches on this machine's NVIDIA GPU; PYTHON has torch and Triton; downloads nothing: build/gpu/report.md
	@scripts/gpu-proof $(PYTHON)

gpu-bundle: setup ## build/gpu/bundle: the wheels that `make gpu` needs on a machine without a package index (MACHINE=aarch64)
	@PYTHONPATH=bench $(BIN)/python -m gpu_proof.bundle $(if $(MACHINE),--machine $(MACHINE))

fuzz: setup ## fuzz every parser of outside bytes: TARGET=name, SECONDS_EACH=20
	@$(BIN)/python tests/fuzz/fuzz_run.py

clean: ## what was made in this directory (the peers' cache stays)
	@rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
