PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow check lint types bench bench-latency bench-fleet docs figures clean

$(READY): pyproject.toml setup.py constraints.txt note_tta/nn/_iabn.c note_tta/nn/_iabn_isa.h note_tta/nn/_iabn_sweeps.h
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,lint]"
	touch $@

demo: $(READY)  ## adapt to a drifting stream of handwritten digits; nothing is downloaded
	$(BIN)/note-tta demo

test: $(READY)  ## the unit suite
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser and not ray"

test-slow: $(READY)  ## what is left out of the unit suite: long, real-data, browser and Ray tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[ray]"
	$(BIN)/python -m pytest -n 2 -m "slow or browser or ray" --ignore=tests/docs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

check: lint types test  ## everything a change must pass

bench: $(READY)  ## speed as ratios, each against its bar
	$(BIN)/python -m benchmarks --out results/benchmarks/speed.json

bench-latency: $(READY)  ## the same for single calls, with updates inside and beside them
	missed=0; out="--latency --out results/benchmarks/latency.json"; \
	$(BIN)/python -m benchmarks $$out || missed=1; \
	OMP_PROC_BIND=true $(BIN)/python -m benchmarks $$out --only camera || missed=1; exit $$missed

bench-fleet: $(READY)  ## the same for many streams
	$(BIN)/python -m benchmarks --fleet --out results/benchmarks/fleet.json

docs: $(READY)  ## the site into site/, warnings as errors, and its pages, examples and notebook run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest -n 2 -m slow tests/docs

figures: $(READY)  ## what the docs show: drawings, the README's table, the pages' outputs, the notebook
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/python docs/tools/drawings.py
	$(BIN)/python docs/tools/readme_table.py
	$(BIN)/python docs/tools/code_blocks.py README.md docs/*.md
	$(BIN)/python docs/tools/notebook.py

clean:
	rm -rf $(VENV) build dist site demo *.egg-info
