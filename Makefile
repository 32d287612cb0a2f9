# make demo   sets up .venv and runs the tour        make test    sets up what the tests need and runs all of them
# make fast   the fast tests, minutes                make slow    the others
# make check  ruff, mypy, import rules               make docs    the site, strict            make tutorials  the lessons
# PYTHON picks the interpreter that makes .venv; PIP_FLAGS passes options to pip.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)
SOURCES := pyproject.toml constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: demo test check fast slow tutorials docs wheel notebooks bench clean

demo: .venv/installed
	$(BIN)/pmdkit tour

test: check fast slow tutorials docs wheel

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: .venv/installed-dev
	$(BIN)/pytest -n 2 -m "not slow and not gpu and not vllm"

slow: .venv/installed-dev
	$(BIN)/pytest -n 2 -m slow

tutorials: .venv/installed-dev
	$(BIN)/pytest -q --nbmake --nbmake-timeout=240 -n 2 tutorials

docs: .venv/installed-dev
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q
	$(BIN)/python docs/check.py site

wheel: .venv/installed-dev
	sh tests/wheel.sh $(BIN)/python

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

clean:
	rm -rf .venv site build dist .pytest_cache .mypy_cache .ruff_cache
