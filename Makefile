# Two commands do all the set-up: `make run` and `make test`. Everything lives in .venv.
# The newest Python that fits, runs and can make environments (Debian keeps ensurepip in python3-venv); PYTHON=… overrides.
PYTHONS := python3.13 python3.12 python3.11
PYTHON ?= $(firstword $(foreach python,$(PYTHONS),$(shell $(python) -c 'import ensurepip, venv' 2>/dev/null && echo $(python))))
VENV ?= .venv
BIN := $(VENV)/bin
CONFIG ?= configs/digits.yaml
# Two tests at a time, a file's tests in one process, in the order of tests/durations.py; where two share the cores, a
# waiting thread must not spin. The plugin nbval costs each process a second; what uses it starts a process of its own.
# A test that hangs fails after 20 minutes with its stack. A test that crashes its worker fails, and a new worker goes on
# with the rest of its file (tests/scheduler.py).
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder -p no:nbval --timeout=1200 --timeout-method=signal --max-worker-restart=20
# Bytecode is kept, whatever the shell says: pytest rewrites the assertions of 600 files, which takes longer than running
# most of them.
BESIDE := GOMP_SPINCOUNT=0 PYTHONDONTWRITEBYTECODE=
# Tests with a target of their own; `make test` runs all others.
APART := not long and not zoo and not numerics and not matrix and not aarch64 and not docs and not serving and not processes and not fuzz and not tasks and not fleet and not defaults and not wheel
# What `make nightly` runs, each suite whole. tests/README.md says what each proves.
NIGHTLY := test bare processes fleet fuzz numerics zoo docs defaults tasks matrix aarch64 serving long faults wheel pythons newest

.DEFAULT_GOAL := help
.PHONY: help run quick test bare pythons wheel newest processes fleet fuzz docs numerics zoo long defaults tasks faults matrix aarch64 serving nightly mutants durations reference lab \
	lint nbval bench aa clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# pip is silent for minutes while it unpacks, so a line every BEAT_S seconds says that it is still at work. The heartbeat
# closes its inherited pipes and exits with its parent shell.
BEAT_S ?= 20
define aloud
@speak() { while sleep $(BEAT_S) >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do echo "$(1): still at work"; done; }; \
	speak & speaker=$$!; trap 'kill $$speaker 2>/dev/null' EXIT INT TERM; echo "$(1)";
endef

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: none of $(PYTHONS) runs and has ensurepip: install one (Debian: python3-venv), or give PYTHON=…" >&2; exit 1; }
	$(call aloud,making $(VENV) with $(PYTHON)) $(PYTHON) -m venv $(VENV)

# torch first and by itself: where an index of CPU builds is configured, pip then keeps that build.
$(VENV)/.workbook: pyproject.toml constraints.txt | $(BIN)/python
	$(call aloud,installing torch) $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(call aloud,installing the workbook) \
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workbook,fleet]'
	touch $@

$(VENV)/.dev: $(VENV)/.workbook
	$(call aloud,installing the tools of the tests) \
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workbook,dev,docs]'
	touch $@

run: $(VENV)/.workbook ## install the workbook and run CONFIG (default configs/digits.yaml) to bundles
	$(BIN)/edgekit run $(CONFIG)

lab: $(VENV)/.workbook ## open JupyterLab on the notebooks
	$(BIN)/jupyter lab notebooks

# The second mypy reads all but the packages that need Linux: a name that Windows' standard library lacks is an error.
# The two run side by side.
lint: $(VENV)/.dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 --follow-imports silent \
		--exclude '^edgekit/(serve|device/releases|fleet/devices/remote)/' edgekit & windows=$$!; \
	$(BIN)/mypy; linux=$$?; wait $$windows && exit $$linux

nbval: $(VENV)/.dev ## run the reference notebooks under nbval, outputs compared; make defaults does so too
	$(BIN)/pytest -q -m defaults tests/test_nbval.py

# The executed notebooks are pages of the site, so there must be a run: if it is there already, this takes seconds.
docs: $(VENV)/.dev ## build the documentation into build/site, strictly; needs a run of the digits and makes it
	$(BIN)/edgekit run configs/digits.yaml --out build/nbval
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/pytest -q -m docs tests/docs

# The notebooks as they stand, with their own default parameters, into the folder that `make docs` fills: a stage that
# is unchanged since is not computed twice, every check of the notebooks runs.
defaults: nbval ## run all nine notebooks with their default parameters under nbval
	mkdir -p build/nbval
	EDGEKIT_ARTIFACTS=$(CURDIR)/build/nbval $(BIN)/pytest -q --nbval-lax --nbval-cell-timeout=1500 -p no:cacheprovider notebooks

quick: $(VENV)/.dev ## fast tests from every package; two minutes
	$(BESIDE) $(BIN)/pytest -q $(WORKERS) --quick -m '$(APART)'

test: lint ## ruff, mypy, and every test that has no target of its own
	$(BESIDE) $(BIN)/pytest -q $(WORKERS) -m '$(APART)'

bare: $(VENV)/.dev ## the tests of make test without any optional program; then targets and runner with older kernels
	$(BESIDE) $(BIN)/python -m tests.bare $(BIN)/python -m pytest -q $(WORKERS) -m '$(APART)'
	$(BESIDE) $(BIN)/python -m tests.bare --kernels $(BIN)/python -m pytest -q $(WORKERS) -m '$(APART)' tests/targets tests/runner

pythons: ## make quick on every Python that is here, each with an environment of its own
	@test -n "$(PYTHON)" || { echo "make: none of $(PYTHONS) runs and has ensurepip" >&2; exit 1; }
	for python in $(PYTHONS); do ! $$python -c 'import ensurepip' || $(MAKE) quick VENV=.venv-$$python PYTHON=$$python || exit 1; done

wheel: $(VENV)/.dev ## the wheel in empty environments of two Pythons, from one pip install to bundles that answer
	$(BIN)/pytest -q -p no:nbval -rP -m wheel tests/test_wheel.py

newest: $(VENV)/.dev ## make quick with the newest releases of all packages, without constraints and ranges; says which are newer
	$(BIN)/python -m venv --clear build/newest
	$(BIN)/python -m tests.newest build/newest/bin/python
	$(BESIDE) build/newest/bin/python -m pytest -q $(WORKERS) --quick -m '$(APART)'

# Three at a time: these tests wait for others a third of their time.
processes: $(VENV)/.dev build/moto/.made ## servers under faults and load, runs and releases killed, the image's folder: real processes
	$(BESIDE) $(BIN)/pytest -q $(WORKERS) -n 3 -m 'processes and not long' tests

fleet: $(VENV)/.dev build/oms/.made ## bundles pushed to devices behind a real sshd, which decide winners too; releases that are watched; an OpenSSF signature
	$(BESIDE) $(BIN)/pytest -q $(WORKERS) -m fleet tests

fuzz: $(VENV)/.dev ## broken requests to the server for EDGEKIT_FUZZ_S seconds, else ten minutes
	$(BESIDE) $(BIN)/pytest -q -p no:nbval -rP -m fuzz tests/serve

numerics: $(VENV)/.dev ## numbers of each target's files, pipelines broken on purpose, and what int8 does to hard samples
	$(BIN)/pytest -q -m numerics tests

zoo: $(VENV)/.dev ## architectures and model files of all kinds on every target and in all stages, against docs/reference/zoo.md
	$(BESIDE) $(BIN)/pytest -q -n 2 --dist load -m zoo tests

# An hour for one test: some of its walks take more than twenty minutes where a processor is slow.
long: $(VENV)/.dev ## whole walks: every road, task and parameter set, and bundles made again
	$(BESIDE) $(BIN)/pytest -q $(WORKERS) --timeout=3600 -m long tests

faults: $(VENV)/.dev ## kill, cut off, fill up and block a run in some hundred places
	$(BIN)/pytest -q -m faults tests/faults

# The bundles stay, so that `make aarch64` asks them on Arm.
tasks: $(VENV)/.dev ## every task from edgekit init to bundles that answer on three interpreters, kept in build/tasks
	$(BESIDE) EDGEKIT_TASK_BUNDLES=$(CURDIR)/build/tasks $(BIN)/pytest -q -n 2 --dist load -p no:nbval -m tasks tests/tasks

matrix: $(VENV)/.dev ## the runner on every Python, numpy and interpreter that has wheels, and as on macOS and Windows
	$(BIN)/pytest -q -m matrix tests/matrix tests/runner tests/test_packaging.py

aarch64: $(VENV)/.dev ## the runner with the real aarch64 wheels under qemu, fetched first
	$(BIN)/python -m tests.aarch64.fetch
	EDGEKIT_TASK_BUNDLES=$(CURDIR)/build/tasks $(BIN)/pytest -q -m aarch64 tests/aarch64

# Triton comes out of a wheel, and clashes with the workbook's numpy and protobuf. perf_analyzer lies in tritonclient's
# wheel, and its loader asks for CUDA's runtime where there is no GPU too. kubernetes-validate holds the schemas of
# every version of Kubernetes, 140 MB.
build/triton/.made:
	$(call aloud,making build/triton) $(PYTHON) -m venv build/triton
	$(call aloud,installing Triton) build/triton/bin/pip install --quiet --disable-pip-version-check \
		nvidia-pytriton==0.7.0 'tritonclient[grpc,http]==2.51.0' ai-edge-litert onnxruntime openvino \
		nvidia-cuda-runtime-cu12==12.9.79
	touch $@

build/kubernetes/.made:
	$(call aloud,making build/kubernetes) $(PYTHON) -m venv build/kubernetes
	$(call aloud,installing validators) build/kubernetes/bin/pip install --quiet --disable-pip-version-check \
		kserve==0.21.0 kubernetes-validate==1.37.0
	touch $@

serving: $(VENV)/.dev build/triton/.made build/kubernetes/.made ## the server and its exports, held against a real Triton, perf_analyzer and Kubernetes' schemas
	$(BIN)/pytest -q -m serving tests/serve

# The OpenSSF's model_signing asks for other versions of packages than the workbook has, and for pyOpenSSL in silence.
build/oms/.made:
	$(call aloud,making build/oms) $(PYTHON) -m venv build/oms
	$(call aloud,installing model-signing) build/oms/bin/pip install --quiet --disable-pip-version-check \
		model-signing==1.1.1 pyOpenSSL
	touch $@

# moto asks for other versions of packages than the workbook has. It is an S3 server in a process of its own.
build/moto/.made:
	$(call aloud,making build/moto) $(PYTHON) -m venv build/moto
	$(call aloud,installing moto) build/moto/bin/pip install --quiet --disable-pip-version-check \
		'moto[s3]==5.2.5' flask flask-cors
	touch $@

nightly: $(VENV)/.dev ## every suite, each whole, and a table at the end; RESUME=1 leaves out what passed on this tree
	$(BIN)/python -m tests.suites $(if $(RESUME),--resume) $(NIGHTLY)

mutants: $(VENV)/.dev ## seeded faults in edgekit, each of which a test or a notebook must notice; hours
	$(BIN)/python -m tests.mutants.check

durations: $(VENV)/.dev build/moto/.made ## run test and processes and write down how long each test takes, for the order and for make quick
	$(BESIDE) $(BIN)/pytest -q $(WORKERS) --measure -m '($(APART)) or (processes and not long)'

reference: $(VENV)/.dev ## execute the reference notebooks of tests/reference again
	$(BIN)/python -m tests.reference.make

# dvc has an environment of its own: it is only measured against.
build/dvc/bin/dvc:
	$(call aloud,making build/dvc) $(PYTHON) -m venv build/dvc
	$(call aloud,installing dvc) build/dvc/bin/pip install --quiet --disable-pip-version-check dvc

bench: $(VENV)/.dev build/dvc/bin/dvc ## what the runner adds, what a finished run and a push cost, and the server beside others
	$(BIN)/python -m benchmarks.runner_overhead
	$(BIN)/python -m benchmarks.noop
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m benchmarks.fleet
	$(MAKE) aa

aa: $(VENV)/.dev ## a file against itself, and against itself 1.5 and 3 % slower, a hundred times; some minutes
	$(BIN)/python -m benchmarks.aa --repetitions 100

clean: ## remove what was built, not what was run
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
