# `make help` lists the targets. Everything happens in .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BUNDLE := bundles/tatoeba-en-de
MODEL  := models/tatoeba-en-de
LIBRARY := core/dragoman/native/libdragoman_ops.so
# A machine without a C++ compiler gets one from the package index.
HAS_CXX := for name in "$$CXX" g++ clang++ c++; do command -v "$$name"; done | grep -q .
# Locked versions of every dependency, one file for each Python version.
LOCK    = constraints/python$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
PIP     = $(BIN)/pip install --quiet --disable-pip-version-check --constraint $(LOCK)
# Files of tests that run at the same time, each with servers of its own: one more than cores, as many tests wait for others.
JOBS   ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup native zig demo test test-zig lint unit integration sanitize tidy wheel bench bench-quick soak hostile hammer gpu-check deploy-tools docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) native ## create .venv with everything; the command is .venv/bin/dragoman

$(STAMP): pyproject.toml $(wildcard constraints/*.txt)
	@test -f $(LOCK) || { echo "dragoman runs on Python 3.10 to 3.12; say which with: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time) …"
	@$(HAS_CXX) || { echo "There is no C++ compiler: installing ziglang; compiling with it takes two minutes" && $(PIP) ziglang; }
	@$(PIP) torch==2.13.0 hatchling editables poetry-core
	@$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $(STAMP)

native: $(LIBRARY) ## compile what is in C++ (operators, Triton backend) where a source changed

# Installing compiles it, too.
$(LIBRARY): native/build.py $(wildcard native/*/*.* native/*/*/*) | $(STAMP)
	@test -f $@ && test -z "$$(find $^ -newer $@)" || $(BIN)/python native/build.py

zig: setup ## install ziglang, the compiler for machines without one and for wheels
	@$(PIP) ziglang

# With other operators the weights may be stored otherwise, and another schema is not read: the bundle is made again.
$(BUNDLE)/manifest.json: $(STAMP) $(wildcard $(LIBRARY)) core/dragoman/bundle/manifest.py | native
	@$(BIN)/dragoman export $(MODEL) --output $(BUNDLE) --force

demo: $(BUNDLE)/manifest.json ## export the bundled model, start the real Triton, translate over gRPC, show the result
	@$(BIN)/python examples/demo.py --bundle $(BUNDLE)

test: lint ## set up, then lint, type-check and run all tests
	@$(PYTEST)

test-zig: zig ## build both libraries and the wheel with ziglang and test them (four minutes the first time)
	@$(PYTEST) tests/unit/native/test_build.py tests/deploy/test_wheel.py

lint: setup ## ruff, mypy --strict and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > /dev/null || $(BIN)/lint-imports --no-cache

unit: setup ## the fast tests only
	@$(PYTEST) tests/unit tests/property tests/contract

integration: setup ## the tests on the real server only
	@$(PYTEST) tests/integration tests/chaos tests/security

sanitize: setup ## the tests of the native code under the address, undefined-behaviour and thread sanitizers
	@$(BIN)/python native/sanitize.py

tidy: setup ## clang-format and clang-tidy over the C++ sources (needs both; five minutes)
	@$(BIN)/python native/tidy.py

wheel: zig ## the sdist, the manylinux wheel and the pure Python wheel, in dist/
	@ZIG_GLOBAL_CACHE_DIR=$(CURDIR)/.cache/zig $(BIN)/python -m build --no-isolation
	@DRAGOMAN_PURE_WHEEL=1 $(BIN)/python -m build --no-isolation --wheel

bench-quick: setup ## the benchmarks in a short form (below 10 minutes)
	@$(BIN)/python -m benchmarks --quick

bench: setup ## all benchmarks
	@$(BIN)/python -m benchmarks

soak: $(BUNDLE)/manifest.json ## every kind of request for ten minutes: nothing may be lost, nothing may grow
	@$(BIN)/python -m benchmarks.soak --bundle $(BUNDLE)

hostile: $(BUNDLE)/manifest.json ## every known kind of hostile request for fifteen minutes: no process may die
	@PYTHONPATH=tests $(BIN)/python -m hostile --bundle $(BUNDLE)

hammer: $(BUNDLE)/manifest.json ## calls that end badly, 20,000 of each kind, on an idle and on a busy machine
	@PYTHONPATH=tests $(BIN)/python -m hostile --bundle $(BUNDLE) --only hammer --only "busy hammer" --calls 20000

gpu-check: setup ## on a machine with a GPU: try everything there and write gpu-report.md (docs/gpu.md)
	@$(BIN)/python -m benchmarks.gpu_check

# Programs that tests run for real: each is installed only where it is missing, so that an installed one stays as it is.
TOOLS = zsh:zsh fish:fish prometheus:prometheus nginx:nginx chromium:chromium openssl:openssl binutils:objdump nodejs:node npm:npm
deploy-tools: ## install what some tests run for real: Prometheus, nginx, Chromium, Node.js (needs root; the tests skip without)
	@missing=$$(for tool in $(TOOLS); do command -v "$${tool#*:}" > /dev/null || echo "$${tool%:*}"; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	apt-get update --quiet --quiet && \
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --quiet --yes --no-install-recommends $$missing

docs: setup ## regenerate the generated pages (command line, Python API, metrics) and wrap the others
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/wrap.py

clean: ## remove what the other targets made
	rm -rf core/dragoman/native/*.so $(VENV) bundles .cache/zig .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
