# Everything runs in .venv, which is made on first use. `make help` lists the targets.

PYTHON ?= python3.11
PAIR ?= en-fr
DEMO ?= demo/$(PAIR)
PORT ?= 8500
BIN = .venv/bin
STAMP = .venv/installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint format serve serve-docker clean

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
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests

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
	rm -rf .venv demo build *.egg-info
