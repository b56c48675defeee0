# Two commands do all the set-up: `make run` and `make test`. Everything lives in .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= configs/digits.yaml
# Two tests at a time, a file's tests in one process, in the order of tests/conftest.py; where two share the cores, a
# waiting thread must not spin.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
BESIDE := GOMP_SPINCOUNT=0
# MINUTES=N: a long suite begins no test after N minutes and skips the rest by name; see tests/time_box.py.
BOX := $(if $(MINUTES),--minutes=$(MINUTES))

.DEFAULT_GOAL := help
.PHONY: help run test docs numerics zoo long defaults faults matrix aarch64 mutants reference lab lint nbval bench aa clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# An environment of old knows this project as edgekit, which is a stranger's name.
# torch first and by itself: where an index of CPU builds is configured, pip then keeps that build.
$(VENV)/.workbook: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip uninstall --quiet --disable-pip-version-check --yes edgekit
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workbook]'
	touch $@

# Last of all, for pip then finds the older versions that onnx2tf pins, and says so at every later installation.
$(VENV)/.onnx2tf: onnx2tf.txt $(VENV)/.workbook
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r onnx2tf.txt
	touch $@

$(VENV)/.dev: $(VENV)/.workbook
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workbook,dev,docs]'
	$(MAKE) $(VENV)/.onnx2tf
	touch $@

run: $(VENV)/.onnx2tf ## install the workbook and run CONFIG (default configs/digits.yaml) to bundles
	$(BIN)/edgekit run $(CONFIG)

lab: $(VENV)/.onnx2tf ## open JupyterLab on the notebooks
	$(BIN)/jupyter lab notebooks

lint: $(VENV)/.dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check edgekit tests docs
	$(BIN)/mypy

# The reference notebooks on the tiny config, strictly: an output that differs from the stored one fails.
nbval: $(VENV)/.dev ## run the reference notebooks under nbval, outputs compared
	rm -rf build/reference && mkdir -p build/reference
	EDGEKIT_ARTIFACTS=$(CURDIR)/build/reference $(BIN)/pytest -q --nbval --nbval-sanitize-with tests/reference/sanitize.cfg \
		--nbval-cell-timeout=600 -p no:cacheprovider tests/reference

# The notebooks as they stand, with their own default parameters, into the folder that `make docs` fills: a stage that
# is unchanged since is not computed twice, every check of the notebooks runs.
defaults: $(VENV)/.dev ## run all seven notebooks as they come under nbval; 5 minutes, or one after make docs
	mkdir -p build/nbval
	EDGEKIT_ARTIFACTS=$(CURDIR)/build/nbval $(BIN)/pytest -q --nbval-lax --nbval-cell-timeout=1500 -p no:cacheprovider notebooks

# The executed notebooks are pages of the site, so there must be a run: if it is there already, this takes seconds.
docs: $(VENV)/.dev ## build the documentation into build/site, strictly; needs a run of the digits and makes it
	$(BIN)/edgekit run configs/digits.yaml --out build/nbval
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/pytest -q -m docs tests/docs

test: lint ## ruff, mypy, pytest, nbval
	$(MAKE) nbval
	$(BESIDE) $(BIN)/pytest -q $(WORKERS) -m 'not long and not zoo and not numerics and not matrix and not aarch64 and not docs'

numerics: $(VENV)/.dev ## 48 pipelines broken on purpose, and sound ones: what the checks say of each
	$(BIN)/pytest -q -m numerics tests/numerics

zoo: $(VENV)/.dev ## 29 architectures on every target in float and int8, against docs/reference/zoo.md
	$(BESIDE) $(BIN)/pytest -q -n 2 --dist load -m zoo tests/zoo

long: $(VENV)/.dev ## every road and parameter set, and bundles made again; 15 to 23 minutes
	$(BIN)/pytest -q $(BOX) -m long tests

faults: $(VENV)/.dev ## kill, cut off, fill up and block a run in some hundred places; 20 minutes
	$(BIN)/pytest -q $(BOX) tests/faults -m faults

matrix: $(VENV)/.dev ## the runner on every Python, numpy and interpreter that has wheels; 6 minutes
	$(BIN)/pytest -q $(BOX) -m matrix tests/matrix

aarch64: $(VENV)/.dev ## the runner with the real aarch64 wheels under qemu, fetched first; 4 minutes
	$(BIN)/python -m tests.aarch64.fetch
	$(BIN)/pytest -q $(BOX) -m aarch64 tests/aarch64

mutants: $(VENV)/.dev ## 106 seeded faults in edgekit, each of which a test or a notebook must notice
	$(BIN)/python -m tests.mutants.check

reference: $(VENV)/.dev ## execute the reference notebooks of tests/reference again
	$(BIN)/python -m tests.reference.make

# dvc has an environment of its own: it is only measured against.
build/dvc/bin/dvc:
	$(PYTHON) -m venv build/dvc
	build/dvc/bin/pip install --quiet --disable-pip-version-check dvc

bench: $(VENV)/.dev build/dvc/bin/dvc ## what the runner adds, its choice loses, a finished run costs, how far Keras is
	$(BIN)/python -m benchmarks.runner_overhead
	$(BIN)/python -m benchmarks.runner_choice
	$(BIN)/python benchmarks/noop.py
	$(BIN)/python -m benchmarks.keras_parity
	$(MAKE) aa

aa: $(VENV)/.dev ## a file against itself, and against itself 1.5 and 3 % slower, a hundred times; some minutes
	$(BIN)/python -m benchmarks.aa --repetitions 100

clean: ## remove what was built, not what was run
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
