# Every target sets itself up: a virtualenv in .venv, pinned by constraints.txt. Only Python (3.11 or newer) and make are needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test check format setup
.DELETE_ON_ERROR:

quickstart: setup   ## train a small agent to do errands, some five minutes on a laptop
	$(BIN)/longloop train configs/quickstart.toml name=quickstart-$$(date +%Y%m%d-%H%M%S)

test: setup         ## the whole test suite
	$(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder

check: setup        ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup       ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("longloop needs Python 3.11 or newer; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
