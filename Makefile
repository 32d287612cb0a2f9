# make demo   creates .venv, installs the five packages, runs the tour     make test   what every change must pass
# make fast   the fast tests alone       make docs   the lessons and the site, in site/       make clean   removes what was built
# make bench  every benchmark, BENCH=--quick for options       make nightly   make test, then what is too slow for it
# What is rarer is a script in tools/, see CONTRIBUTING.md. PYTHON picks the interpreter; PIP_FLAGS passes options to pip.
PYTHON ?= python3
PIP = python -m pip install -q --disable-pip-version-check $(PIP_FLAGS)
PYTEST := .venv/bin/pytest -q -n 3 --dist loadfile --no-loadscope-reorder
SITE := PMDKIT_SITE=$(CURDIR)/site .venv/bin/pytest -q -n 2 tests/site tests/explore tests/docs
VLLM := .venv-vllm/bin/pytest -q tests/vllm $(wildcard tests/llm/test_cluster.py) -m
export OMP_NUM_THREADS ?= 1

.PHONY: demo test fast docs bench nightly clean

demo: .venv/installed
	.venv/bin/pmdkit tour

test: .venv/installed-dev .venv-vllm/installed
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports
	sh tools/beside.sh '.venv/bin/mypy && .venv/bin/mypy llm/train.py && sh tools/wheel.sh .venv/bin/python' \
	  '$(VLLM) "vllm and not nightly and not gpu"'
	$(PYTEST) -m "not nightly and not gpu and not vllm and not site"
	$(MAKE) docs LESSONS=--short
	$(SITE) -m "site and not nightly"

fast: .venv/installed-dev
	$(PYTEST) $(patsubst %,--ignore tests/%,docs tutorials faults site vllm) -m "not slow and not nightly and not gpu and not vllm and not site"

docs: .venv/installed-dev
	.venv/bin/python docs/prose.py
	.venv/bin/python docs/build.py $(LESSONS)
	REPOSITORY="$$(.venv/bin/python docs/generate/address.py --print)" .venv/bin/mkdocs build --strict -q
	.venv/bin/python docs/finish.py site
	.venv/bin/python docs/check.py site

bench: .venv/installed-dev
	PIP_FLAGS="$(PIP_FLAGS)" sh tools/bench.sh "$(PYTHON)" $(BENCH)

nightly: test
	$(PYTEST) -m "nightly and not gpu and not vllm and not site"
	$(MAKE) docs && $(SITE) -m site
	$(VLLM) "vllm and nightly and not gpu"
	PYTHON="$(PYTHON)" PIP_FLAGS="$(PIP_FLAGS)" sh packages/pmdkit-adapters/tests/run.sh
	export PIP_FLAGS="$(PIP_FLAGS)"; sh tests/field/run.sh && sh tools/reasoning.sh "$(PYTHON)" && sh tools/torch.sh "$(PYTHON)" && .venv/bin/python benchmarks/doctors.py check

clean:
	rm -rf .venv .venv-* site build dist .pytest_cache .mypy_cache .ruff_cache

# torch first, on its own: if a CPU build is offered pip takes it, and nothing later replaces it
.venv/installed: pyproject.toml packages/*/pyproject.toml constraints.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/$(PIP) -c constraints.txt torch
	.venv/bin/$(PIP) -c constraints.txt -e packages/strict-answers -e '.[llm]' -e packages/pmdkit-lab -e packages/pmdkit-course -e packages/pmdkit-adapters
	touch $@

.venv/installed-dev: .venv/installed
	.venv/bin/$(PIP) -c constraints.txt -e packages/strict-answers -e '.[dev]' -e packages/pmdkit-lab -e packages/pmdkit-course -e packages/pmdkit-adapters
	touch $@

.venv-vllm/installed: tests/vllm/requirements.txt pyproject.toml
	PIP_FLAGS="$(PIP_FLAGS)" sh tools/vllm.sh "$(PYTHON)"
