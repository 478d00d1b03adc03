# Everything runs in .venv, made on first use and brought up to date when what it is made from changes.

PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.DEFAULT_GOAL := help
.PHONY: help test demo lint format types tests thorough families report clean

help: ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

test: lint types tests ## style, types and all tests

# All cores, and threads that sleep while they wait: spinning ones starve each other on a busy machine.
demo: .venv/stamp ## train exits on real sentences, see what they save and where each sentence leaves
	env -u OMP_NUM_THREADS OMP_WAIT_POLICY=PASSIVE $(BIN)/paredown demo

lint: .venv/stamp ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/stamp ## let ruff rewrite what it can
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

types: .venv/stamp ## mypy
	$(BIN)/mypy

tests: .venv/stamp ## pytest on two processes
	$(BIN)/python -m pytest -n 2 --dist worksteal

thorough: .venv/stamp ## pytest on every combination, with five times the random examples
	$(BIN)/python -m pytest -n 2 --dist worksteal --thorough

families: .venv/stamp ## survey again which encoder families can be walked (docs/families.*)
	$(BIN)/python -m benchmarks.families

report: .venv/stamp ## write README, pages and cards again from the committed results
	$(BIN)/python -m benchmarks.report

clean: ## forget the environment and all caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
