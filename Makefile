# `make demo` plans the built-in job; `make test` checks everything. Both set up what they need in .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

QUICK := $(addprefix tests/,catalog job rules/test_check.py rules/test_fit_rules.py rules/test_job_rules.py \
	rules/test_layout_rules.py check/test_cases.py test_architecture.py test_write.py)
COMPONENTS := slurmctld slurmd slurm-client pdsh openssh-server chromium zsh fish man-db

.PHONY: demo test quick fuzz lint docs browser accuracy picture clean

# setuptools keeps build/ and would install modules that are gone from the sources.
demo: $(BIN)/python
	@rm -rf build
	$(PIP) install .
	$(BIN)/dsgen --gpus 1024

# Setting up uses both cores, where pip would compile all modules on one. Tests of one module, and those of Slurm, sshd
# and long runs, share a process. Long runs come first and mostly wait, so that a third process has work on two cores.
test: $(BIN)/python
	@rm -rf build
	@$(MAKE) --no-print-directory -j 2 packages components
	@$(MAKE) --no-print-directory -j 2 compiled lint
	PYTHONDONTWRITEBYTECODE= PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -n 3

# torch comes first because DeepSpeed's build looks for it.
.PHONY: packages compiled
packages: $(BIN)/python
	$(PIP) install --no-compile torch==2.13.0
	$(PIP) install --no-compile '.[test]'

# Some packages carry Python of other versions, which is left as it is.
compiled:
	@$(BIN)/python -m compileall -qq -j 2 $(VENV)/lib || true

# Every case of every rule, the reader of specs and the laws of the house, on the sources as they are.
quick: $(BIN)/python
	@$(BIN)/python -c "import xdist, hypothesis, dsgen, sys; sys.exit(dsgen.__file__ != '$(CURDIR)/generator/__init__.py')" 2>/dev/null \
		|| $(PIP) install -e '.[unit]'
	PYTHONDONTWRITEBYTECODE= PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q -n 2 -m 'not integration and not slow' $(QUICK)

# Random search for faults, over all commands and readers: `make fuzz SEED="7 8 9" INPUTS=20000`. What it finds becomes a case.
SEED ?= 1
INPUTS ?= 20000
fuzz: $(BIN)/python
	@$(BIN)/python -c "import dsgen, sys; sys.exit(dsgen.__file__ != '$(CURDIR)/generator/__init__.py')" 2>/dev/null \
		|| $(PIP) install -e '.[unit]'
	$(BIN)/python -m benchmarks.fuzz --seed $(SEED) --inputs $(INPUTS)

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Debian's Slurm, pdsh, sshd, Chromium and shells, where they may be installed; the tests say at the end what they skipped without them.
.PHONY: components
components:
	@missing=; for program in slurmctld slurmd sbatch pdsh sshd chromium zsh fish man; do PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing $(COMPONENTS)"; \
		apt-get -qq update >/dev/null; \
		for package in $(COMPONENTS); do \
			DEBIAN_FRONTEND=noninteractive apt-get -qq install -y $$package >/dev/null || echo "could not be installed: $$package"; \
		done; \
	else echo "no root or no apt-get, so not installed:$$missing; tests that need them will be skipped"; fi

# The site of docs/, in site/: open site/index.html.
docs: $(BIN)/python
	@rm -rf build
	$(PIP) install '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

# dsgen as one page that needs no installation: dist/browser.html.
browser: $(BIN)/python
	@rm -rf build
	@mkdir -p dist
	$(PIP) install .
	$(BIN)/python -m scripts.browser.build dist/browser.html $(VENV)/browser

picture: $(BIN)/python
	$(PIP) install .
	$(BIN)/python docs/make_summary.py
	$(BIN)/python -m benchmarks.accuracy --figure docs/accuracy.svg

# What depends on the published runs, in the order in which it depends on one another.
accuracy: $(BIN)/python
	$(PIP) install -e .
	$(BIN)/python -m benchmarks.fit --write
	$(BIN)/python -m benchmarks.uncertainty --write
	$(BIN)/python -m benchmarks.accuracy --figure docs/accuracy.svg
	$(BIN)/python -m benchmarks.accuracy

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "dsgen needs Python 3.10 or later: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
