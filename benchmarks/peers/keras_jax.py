"""Stock Keras layers on JAX as a worker of the benchmarks, run by its own environment's Python.

python -m peers.keras_jax train BATCHES VOCABULARY UNITS MODEL FORM...
"""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

from peers.stock_keras import training
from peers.workload import refuse, serve_peer

if __name__ == "__main__":
    serve_peer(training, lambda *_: refuse("translation"))
