# make setup | demo | compiled | test | lint | types | imports | lock | clean: see CONTRIBUTING.md.
# Needs only make and a Python from 3.11 to 3.13 (with venv); everything else is installed into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.locked
JOBS ?= 2
# The package with its core compiled: PYTHONPATH=build/compiled uses it in place of src.
COMPILED := build/compiled

# The first interpreter of a supported version; PYTHON=... overrides the search.
PYTHON ?= $(shell for candidate in python3.13 python3.12 python3.11 python3 python; do \
	command -v $$candidate >/dev/null 2>&1 || continue; \
	$$candidate -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
		2>/dev/null || continue; echo $$candidate; break; done)

.PHONY: help setup demo compiled test lint types imports fast slow fast-compiled format lock clean

help:
	@echo 'make setup    build .venv from requirements.lock, with .venv/bin/stellwerk'
	@echo 'make demo     set up, then run the demonstration (stellwerk demo)'
	@echo 'make test     set up, then lint, types, import rules and all tests'
	@echo 'make fast     the tests without a Ray cluster;  make slow: those with one'
	@echo 'make compiled the core compiled by mypyc into $(COMPILED), for speed;  make fast-compiled: its tests'
	@echo 'make lint     ruff;  make types: pyright;  make imports: the layers;  make format: ruff, rewriting'
	@echo 'make lock     solve requirements.lock anew;  make clean: remove what was built'

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo 'make: no Python 3.11, 3.12 or 3.13 with venv and ensurepip was found' \
		'(on Debian and Ubuntu: apt-get install python3-venv); name one with PYTHON=/path/to/python' >&2; exit 3; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if ! cmp -s requirements.lock $(VENV)/.lock; then \
		echo 'Installing the locked dependencies into $(VENV) (once; some minutes) ...'; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock; \
	fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@cp requirements.lock $(VENV)/.lock
	@touch $@

demo: setup
	@$(BIN)/stellwerk demo

compiled: $(COMPILED)/.built

$(COMPILED)/.built: $(STAMP) $(shell find src -name '*.py')
	@rm -rf $(COMPILED)
	@echo 'Compiling the core into $(COMPILED) (some minutes; needs a C compiler and the headers of Python) ...'
	@rm -rf build/source && mkdir -p build/source && cp -R src pyproject.toml README.md LICENSE build/source
	@HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --target $(COMPILED) ./build/source
	@rm -rf build/source
	@touch $@

test: lint types imports fast fast-compiled slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright

imports: setup
	$(BIN)/lint-imports

fast: setup
	$(BIN)/pytest -m 'not ray' -n $(JOBS)

# Only where it can be compiled: Python is often installed without its headers.
fast-compiled: setup
	@if ! { command -v cc && test -f "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; } \
		>/dev/null; then echo 'NOT TESTED: the compiled core (no C compiler, or no headers of Python)'; exit 0; fi; \
	$(MAKE) --no-print-directory compiled; \
	PYTHONPATH=$(COMPILED) $(BIN)/pytest -o pythonpath=. -m 'not ray' -n $(JOBS) tests/scheduling tests/simulation tests/controller; \
	echo 'Comparing what is decided, compiled and not ...'; \
	compiled=$$(PYTHONPATH=$(COMPILED) $(BIN)/python tests/scheduling/fuzz.py --digest --seeds 0..100); \
	plain=$$($(BIN)/python tests/scheduling/fuzz.py --digest --seeds 0..100); \
	test "$$compiled" = "$$plain" || { echo "they differ: $$compiled, and $$plain as it is written" >&2; exit 1; }

slow: setup
	$(BIN)/pytest -m ray || { code=$$?; test $$code -eq 5 && echo 'no test is marked ray' || exit $$code; }

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One set of versions for Python 3.11 to 3.13, hashes for every file, and no word about where they came from.
lock:
	@test -x $(BIN)/uv || $(MAKE) setup
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --fork-strategy fewest \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--quiet --output-file $(VENV)/new.lock
	@{ echo '# All dependencies with all extras, for Python 3.11 to 3.13. Written by `make lock`; do not edit.'; \
		cat $(VENV)/new.lock; } > requirements.lock

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache .mypy_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
