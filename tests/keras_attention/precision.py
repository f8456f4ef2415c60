"""How far each layer is from the values recorded in gold.json: float32, TF32 and bfloat16.

`python -m tests.keras_attention.precision [COUNT]` prints a JSON line a precision and layer, for
the backend and device that Keras has. The values were recorded in float32 on a CPU, where the other
tests hold each formula to a loop in NumPy.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np

from tests.keras_attention import zoo

# Products of float32 are rounded to 10 bits in TF32 before they are added, to 8 in bfloat16.
TOLERANCES = {"float32": 1e-4, "TF32": 2e-2, "bfloat16": 2e-1}


def differences(names):
    """A row a precision and layer: its largest difference, in units of its largest value."""
    gold = json.loads(Path(__file__).with_name("gold.json").read_text())
    for precision, tolerance in TOLERANCES.items():
        allow_tf32(precision == "TF32")
        for name in names:
            policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
            keras.config.set_dtype_policy(policy)
            try:
                found = outputs(name)
            except (RuntimeError, ValueError, TypeError) as error:
                yield {"case": name, "precision": precision, "error": str(error)[:200]}
                continue
            finally:
                keras.config.set_dtype_policy("float32")
            worst = 0.0
            for n, values in enumerate(found):
                wanted = np.array(gold[name][str(n)])
                size = max(np.abs(wanted).max(), 1e-3)
                worst = max(worst, float(np.abs(values - wanted).max() / size))
            right = "yes" if worst <= tolerance else "NO"
            yield {"case": name, "precision": precision, "difference": worst, "right": right}
    allow_tf32(False)


def outputs(name):
    """The layer's outputs of the inputs and weights that gold.json was recorded with."""
    layer, inputs, _ = zoo.recorded(name)
    return [
        keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")).astype("float64").ravel()
        for x in zoo.call(name, layer, inputs)
    ]


def allow_tf32(allow):
    """Let products of float32 be rounded to TF32 first, or forbid it; a CPU takes no notice."""
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if allow else "float32")
    elif keras.backend.backend() == "torch":
        import torch

        torch.set_float32_matmul_precision("high" if allow else "highest")
        torch.backends.cudnn.allow_tf32 = allow
    else:
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(allow)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else len(zoo.LAYERS)
    for row in differences(list(zoo.LAYERS)[:count]):
        print(json.dumps(row), flush=True)
