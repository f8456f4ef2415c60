# Everything runs in .venv, which is made on first use. `make help` lists the targets.

PYTHON ?= python3.11
PAIR ?= en-fr
DEMO ?= demo/$(PAIR)
PORT ?= 8500
BIN = .venv/bin
STAMP = .venv/installed
BACKENDS = .venv-backends

.DEFAULT_GOAL := help
.PHONY: help demo test test-backends test-jax test-torch lint format serve serve-docker clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): setup.py
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed; set PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## train on the built-in phrasebook, export, check, serve, query (PAIR=en-fr|en-zh)
	$(BIN)/python -m serving.demo --pair $(PAIR) --output $(DEMO)

test: $(STAMP)  ## run the tests on TensorFlow
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests --ignore tests/backends

# PyTorch's file without CUDA where the machine has one; else whatever the registry gives.
$(BACKENDS)/installed: setup.py
	$(PYTHON) -m venv $(BACKENDS)
	-$(BACKENDS)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BACKENDS)/bin/pip install --quiet --disable-pip-version-check -e '.[dev,backends]'
	@touch $@

test-backends: $(BACKENDS)/installed  ## run the tests of layers and training on JAX and PyTorch, at the same time
	$(MAKE) --no-print-directory -j 2 test-jax test-torch

# Most tests build small functions and run them once: compiling quickly, and never twice, is all.
test-jax: export KERAS_BACKEND = jax
test-jax: export JAX_DISABLE_MOST_OPTIMIZATIONS = 1
test-jax: export JAX_COMPILATION_CACHE_DIR = $(BACKENDS)/jax
test-jax: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0
test-jax: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES = -1
test-jax: $(BACKENDS)/installed
	$(BACKENDS)/bin/python -m pytest -q -n 2 --dist loadfile tests/keras_attention tests/backends

test-torch: export KERAS_BACKEND = torch
test-torch: export OMP_NUM_THREADS = 1
test-torch: $(BACKENDS)/installed
	$(BACKENDS)/bin/python -m pytest -q tests/keras_attention tests/backends

lint: $(STAMP)  ## check format and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(STAMP)  ## put the code in format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

serve: $(STAMP)  ## serve the newest export under models/ on port $(PORT)
	@base=$$(ls -td models/*/ demo/*/models/*/ 2>/dev/null | head -1); \
	  [ -n "$$base" ] || { echo "error: nothing is exported under models/ yet: python -m serving.export --help" >&2; exit 1; }; \
	  exec $(BIN)/python -m serving.server --port=$(PORT) --model_name=$$(basename $$base) --model_base_path=$$PWD/$$base

serve-docker:  ## serve models/ with stock TensorFlow Serving, where a Docker engine is
	MODELS=$$PWD/models docker compose -f serving/deploy/compose.yaml up

clean:  ## remove the environment and the demo
	rm -rf .venv $(BACKENDS) demo build *.egg-info
