# Everything runs in .venv, which is made on first use. `make help` lists the targets.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo $$p && break; done)
PAIR ?= en-fr
DEMO = demo/$(PAIR)
PORT ?= 8500
PAGE_PORT ?= 8080
BIN = .venv/bin
STAMP = .venv/installed
BACKENDS = .venv-backends
NIGHTLY = .venv-nightly

.DEFAULT_GOAL := help
.PHONY: help demo install-backends test coverage test-slow test-guides test-benchmarks test-benchmarks-nightly test-choices test-lab test-backends test-nightly test-jax test-torch verify-gpu gpu-kernels verify-stock lint format docs build serve page test-page page-kernel messages test-batch serve-docker clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

define find-python
python="$(PYTHON)"; command -v "$$python" >/dev/null || { \
	echo "error: no Python of version 3.11, 3.12 or 3.13 was found; say where: make PYTHON=…" >&2; exit 1; }
endef

# A module is compiled when it is imported first, which few of all that is installed ever are.
INSTALL = install --no-compile --quiet --disable-pip-version-check

$(STAMP): setup.py
	@$(find-python); $$python -m venv .venv
	$(BIN)/pip $(INSTALL) -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## train, export, check, serve, query: the phrasebook (PAIR=en-fr|en-zh), or TASK=digits|captcha|pbcseq|pronounce
	$(BIN)/python -m serving.demo $(or $(TASK),$(PAIR)) --output $(if $(TASK),demo/$(TASK),$(DEMO))

# Each program that XLA compiles runs once: of few instructions it is there sooner.
QUICKLY = --xla_backend_optimization_level=0 $(if $(filter x86_64,$(shell uname -m)),--xla_cpu_max_isa=SSE4_2)
# The workers share the cores: an op splits its work in vain.
test test-slow test-lab: export XLA_FLAGS = $(QUICKLY)
test test-slow test-lab: export TF_NUM_INTRAOP_THREADS = 1
BY_FILE = --dist loadfile --no-loadscope-reorder
PYTEST = $(BIN)/python -m pytest -q -n 3 $(BY_FILE) tests $(patsubst %,--ignore=tests/%,backends page batch benchmarks choices)
# Workers start, and models are trained and exported, once for all of ALL=1.
test: $(STAMP)  ## run the tests on TensorFlow (ALL=1: also test-slow and test-lab)
	$(PYTEST) $(if $(ALL),,--ignore=tests/lab -m "not slow")

test-slow: $(STAMP)  ## run the tests that `make test` leaves out
	$(PYTEST) --ignore=tests/lab -m slow

.venv/coverage-installed: $(STAMP)
	$(BIN)/pip $(INSTALL) -e '.[coverage]'
	@touch $@

coverage: export PYTEST_ADDOPTS = --cov=keras_attention --cov=training --cov=serving --cov-branch --cov-report=term-missing:skip-covered
coverage: .venv/coverage-installed test  ## `make test`, and what of the three packages it does not run

test-choices: $(STAMP)  ## train on kinds of data with default settings, and compare with floors; 15 minutes of a core
	TF_NUM_INTRAOP_THREADS=1 $(BIN)/python -m pytest -q -m slow tests/choices

test-lab: $(STAMP)  ## run the experiments of lab/ on tiny sizes
	$(BIN)/python -m pytest -q -n 2 $(BY_FILE) tests/lab

test-benchmarks: $(STAMP)  ## run the benchmarks on tiny sizes
	$(BIN)/python -m pytest -q -n 2 -m "not slow" tests/benchmarks

# The Python that has the GPU's JAX, PyTorch or TensorFlow: make verify-gpu BACKEND=torch GPU_PYTHON=python3
verify-gpu:  ## measure a GPU: one report (BACKEND=jax|torch|tensorflow, MINUTES=9, GPU_PYTHON=python3)
	$(or $(GPU_PYTHON),python3) benchmarks/gpu.py --backend $(or $(BACKEND),jax) --minutes $(or $(MINUTES),9) \
	  --output $(or $(OUTPUT),gpu-$(or $(BACKEND),jax))

gpu-kernels: $(STAMP)  ## count what a training step launches on a GPU, and what is compiled; no GPU is needed (BACKEND=tensorflow|jax)
	$(BIN)/python benchmarks/gpu_kernels.py --backend $(or $(BACKEND),tensorflow)
	$(BIN)/python benchmarks/gpu_kernels.py --preset phrasebook-en-fr

# Environments of their own, which find what they lack in .venv's: only what differs is installed.
define beside-venv
	$(BIN)/python -m venv $(1)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo $(1)/lib/python3*/site-packages)/venv.pth
endef

# PyTorch's file without CUDA where the machine has one; else whatever the registry gives.
$(BACKENDS)/installed: $(STAMP)
	$(call beside-venv,$(BACKENDS))
	-$(BACKENDS)/bin/pip $(INSTALL) torch==2.13.0
	$(BACKENDS)/bin/pip $(INSTALL) -e '.[backends]'
	@touch $@

install-backends: $(BACKENDS)/installed  ## install JAX and PyTorch into an environment of their own

test-backends: $(BACKENDS)/installed  ## run the tests of layers and training on JAX and PyTorch, at the same time
	$(MAKE) --no-print-directory -j 2 test-jax test-torch

$(NIGHTLY)/installed: $(STAMP)
	$(call beside-venv,$(NIGHTLY))
	$(NIGHTLY)/bin/pip $(INSTALL) --pre --no-deps keras-nightly
	$(NIGHTLY)/bin/pip $(INSTALL) --no-deps -e .
	@touch $@

# Keras's nightly is one day's: what warns there fails nobody here. Loops, searches and kernels call
# nothing of Keras but its ops, which the layers' tests call, too.
test-nightly: export XLA_FLAGS = $(QUICKLY)
test-nightly: export TF_NUM_INTRAOP_THREADS = 1
test-nightly: $(NIGHTLY)/installed  ## run the tests of the layers and of the README on Keras's nightly build
	$(NIGHTLY)/bin/python -m pytest -q -n 2 --dist loadfile -W ignore::UserWarning -m "not slow" tests/keras_attention tests/test_readme.py \
	  --ignore tests/keras_attention/fast --ignore tests/keras_attention/search --ignore tests/keras_attention/test_gpu_scan.py

test-guides: $(STAMP)  ## run the guides as they stand, whose models learn for minutes
	EVERY_GUIDE=1 $(BIN)/python -m pytest -q tests/test_guide_commands.py tests/keras_attention/test_guides.py

# Formulas are operations of Keras: TensorFlow's tests hold them to NumPy, `test_agreement` holds all backends to
# the same values and gradients. These hold what a backend does in its own way: derivatives, loops, compilers, exports.
OF_BACKENDS = tests/backends tests/test_readme.py $(addprefix tests/keras_attention/, backend fast/test_additive.py \
  search/test_search.py $(patsubst %,test_%.py,agreement contract distributions exports fitting guides layers masks \
  pointer states))

# JAX compiles each operation of the guides, for minutes: the nightly workflow runs these.
OF_JAX = $(filter-out %/test_guides.py, $(OF_BACKENDS))

# Most tests build small functions and run them once: compiling quickly is all, and each only once.
test-jax: export KERAS_BACKEND = jax
test-jax: export JAX_DISABLE_MOST_OPTIMIZATIONS = 1
test-jax: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/$(BACKENDS)/jax-programs
test-jax: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0
test-jax: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES = -1
test-jax: $(BACKENDS)/installed
	$(BACKENDS)/bin/python -m pytest -q -n 2 $(BY_FILE) --max-worker-restart 0 $(OF_JAX)

test-torch: export KERAS_BACKEND = torch
test-torch: export OMP_NUM_THREADS = 1
test-torch: $(BACKENDS)/installed
	$(BACKENDS)/bin/python -m pytest -q $(OF_BACKENDS)

# The nightly workflow runs it: few changes touch what it holds, and each backend takes minutes.
test-benchmarks-nightly: $(BACKENDS)/installed  ## run the long benchmarks on tiny sizes, the report of a GPU on every backend
	$(BIN)/python -m pytest -q -m slow tests/benchmarks
	KERAS_BACKEND=jax $(BACKENDS)/bin/python -m pytest -q -m slow tests/benchmarks/test_gpu.py
	KERAS_BACKEND=torch $(BACKENDS)/bin/python -m pytest -q -m slow tests/benchmarks/test_gpu.py

lint: $(STAMP)  ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)  ## put the code in format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/docs-installed: $(STAMP)
	$(BIN)/pip $(INSTALL) -e '.[docs]'
	@touch $@

docs: .venv/docs-installed  ## build the documentation site under site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

build: $(STAMP)  ## build the distributions under dist/: the package, and the client alone
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist packaging/client

.venv/browser-installed: $(STAMP)
	$(BIN)/pip $(INSTALL) -e '.[browser]'
	@command -v chromium >/dev/null || [ -n "$(CHROMIUM)" ] || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || { \
	  echo "error: Chromium is not installed; install it, or say where: make CHROMIUM=…" >&2; exit 1; }
	@touch $@

test-page: .venv/browser-installed  ## run the tests of the page in headless Chromium
	CHROMIUM=$(CHROMIUM) $(BIN)/python -m pytest -q tests/page

# AssemblyScript's compiler comes from npm.
page-kernel:  ## build the products of the page without a server: serving/portable/engine/kernel.js
	@folder=$$(mktemp -d) && trap "rm -r $$folder" EXIT && \
	  npx --yes --package assemblyscript@0.28.20 -- asc serving/portable/engine/kernel.ts -O3 --runtime stub \
	    --enable simd --noAssert --initialMemory 1 --maximumMemory 65536 --outFile $$folder/kernel.wasm && { \
	    echo "// The kernel of kernel.ts as WebAssembly, in base64; \`make page-kernel\` writes it."; \
	    printf 'export const KERNEL = "%s";\n' "$$(base64 -w 0 $$folder/kernel.wasm)"; \
	  } > $(or $(OUTPUT),serving/portable/engine/kernel.js)

# This protoc's code runs on protobuf 5.29 and later; a newer one's asks for its own version.
messages:  ## build the client's messages from serving/client/serving.proto
	@$(find-python); folder=$$(mktemp -d) && trap "rm -r $$folder" EXIT && $$python -m venv $$folder && \
	  $$folder/bin/pip install --quiet --disable-pip-version-check grpcio-tools==1.71.2 && \
	  $$folder/bin/python -m grpc_tools.protoc -I . --descriptor_set_out=serving/client/serving.binpb serving/client/serving.proto

.venv/batch-installed: $(STAMP)
	$(BIN)/pip $(INSTALL) -e '.[batch]'
	@touch $@

test-batch: .venv/batch-installed  ## run the tests of batch translation on Ray's workers
	$(BIN)/python -m pytest -q -n 2 tests/batch

# The newest export.
define find-model
base=$$(ls -td $(or $(1),models/*/ demo/*/models/*/) 2>/dev/null | head -1 | sed -E 's,[0-9]+/saved_model.pb$$,,'); \
	[ -n "$$base" ] || { echo "error: nothing is exported under models/ yet: make demo, or python -m serving.export --help" >&2; exit 1; }; \
	name=$$(basename $$base)
endef

serve: $(STAMP)  ## serve the newest export under models/ on port $(PORT)
	@$(call find-model); \
	  exec $(BIN)/python -m serving.server --port=$(PORT) --model_name=$$name --model_base_path=$$PWD/$$base

page: $(STAMP)  ## serve the newest export and show it in the browser, on port $(PAGE_PORT)
	@$(call find-model); \
	  version=$$(ls -d $$base[0-9]* | sort -V | tail -1); \
	  $(BIN)/python -m serving.server --port=$(PORT) --model_name=$$name --model_base_path=$$PWD/$$base & \
	  trap "kill $$!" EXIT; \
	  case $$base in demo/en-*) example="She is eating a green apple.";; *) example=;; esac; \
	  $(BIN)/python -m serving.page --target localhost:$(PORT) --model $$name --port $(PAGE_PORT) --open \
	    --example "$$example" \
	    --manifest $$(ls $$version/manifest.json $$version/assets.extra/manifest.json 2>/dev/null | head -1)

verify-stock: $(STAMP)  ## compare the newest SavedModel with a server of it (AGAINST=HOST:PORT, REST=HOST:PORT)
	@$(call find-model,models/*/[0-9]*/saved_model.pb demo/*/models/*/[0-9]*/saved_model.pb); \
	  newest=$$(ls -d $$base[0-9]*/saved_model.pb | sort -V | tail -1); \
	  exec $(BIN)/python -m serving.check "$${newest%/saved_model.pb}" --model $$name \
	    --against $(or $(AGAINST),localhost:8500) $(if $(REST),--rest $(REST))

serve-docker:  ## serve models/ with stock TensorFlow Serving, where a Docker engine is
	MODELS=$$PWD/models docker compose -f serving/deploy/compose.yaml up

clean:  ## remove the environment and the demo
	rm -rf .venv $(BACKENDS) $(NIGHTLY) demo build dist site *.egg-info .mypy_cache
