"""Base classes of the layers: argument checks, kernels, heads, dropout."""

from __future__ import annotations

import functools
import inspect
import itertools
from numbers import Integral, Real
from types import MethodType
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from keras_attention import backend, distributions
from keras_attention.shapes import Shape, Tensor, fits, flat_length, flat_mask

# Arguments that this library does not have, mostly of TensorFlow Addons, and what to use instead.
_OF_OTHERS = {
    "memory": "the memory in the call, layer(query, memory), or in prepare(memory)",
    "memory_sequence_length": "a mask in the call, keras.ops.arange(length) < lengths[:, None]",
    "attention_layer_size": "units=",
    "attention_mechanism": "attention=",
    "alignment_history": "return_attention_scores=True",
    "probability_fn": "distribution=",
    "sigmoid_noise": "noise=",
    "score_bias_init": "bias_initial=",
    "go_backwards": "no Bidirectional around it: this layer has one direction",
}
_NOT_DENSE = ("RaggedTensor", "SparseTensor", "BCOO")


class BaseLayer(keras.layers.Layer):
    """Base class of the layers: argument checks with uniform error messages, and `get_config`.

    A subclass stores each argument of its constructor in an attribute of the same name.

    Args:
        kernel_initializer: initializer of the kernels.
        kernel_regularizer: regularizer of the kernels, or None.
        kernel_constraint: constraint of the kernels, or None.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> BaseLayer:
        """Create the layer, or raise a ValueError for unknown or unsuitable arguments."""
        layer: BaseLayer = super().__new__(cls, *args, **kwargs)
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        placed = [x.name for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD]
        valid = len(args) <= len(placed) or any(x.kind is x.VAR_POSITIONAL for x in parameters)
        expected = f"{len(placed)} arguments by their place, and the others by their names"
        layer._expect(valid, expected, f"{len(args)} arguments")
        named = {**dict(zip(placed, args, strict=False)), **kwargs}
        for name, value in named.items():
            shape = getattr(value, "shape", ())
            expected = _OF_OTHERS.get(name, _OF_OTHERS["memory"] if shape else "")
            received = f"{name}=" + (f"a tensor {tuple(shape)}" if shape else repr(value))
            layer._expect(not expected, expected, received)
            kinds = str(getattr(_parameters(cls).get(name), "annotation", "")).split(" | ")
            if "bool" in kinds:
                flag = isinstance(value, (bool, np.bool_)) or (value is None and "None" in kinds)
                layer._expect(flag, f"{name} to be True or False", received)
        return layer

    def __init__(
        self,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        # The dtype of scores, and of sums over many positions or queries.
        self.wide_dtype = "float64" if self.compute_dtype == "float64" else "float32"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer as Keras does, or raise a ValueError for missing or unknown inputs."""
        inputs = _inputs(type(self).call)
        several = len(args) == 1 and isinstance(args[0], (list, tuple))
        if several or not kwargs.keys() >= set(inputs[len(args) :]):
            count = len(args) + len(kwargs.keys() & set(inputs[len(args) :]))
            received = f"a list of {len(args[0])}" if several else f"{count} inputs"
            self._refuse(f"to be called as layer({', '.join(inputs)})", received)
        names = list(inspect.signature(type(self).call).parameters)[1:]
        unknown = set() if "kwargs" in names else kwargs.keys() - {*names, "training"}
        if unknown:
            self._refuse(f"no arguments but {', '.join(names)}", ", ".join(sorted(unknown)))
        self._expect_dense(*args, *kwargs.values())
        return super().__call__(*args, **kwargs)

    def add_kernel(self, shape: tuple[int, ...], name: str, **kwargs: Any) -> keras.Variable:
        """Add a weight with the layer's initializer, regularizer and constraint."""
        rules = {"regularizer": self.kernel_regularizer, "constraint": self.kernel_constraint}
        return self.add_weight(shape, self.kernel_initializer, name=name, **rules, **kwargs)

    def _refuse(self, expected: str, received: str) -> None:
        error = ValueError(f"{type(self).__name__} expected {expected}. Received: {received}")
        error.__dict__["_keras_call_info_injected"] = True  # Keras adds lines to errors without it
        raise error

    def _expect(self, holds: bool, expected: str, received: str = "", **values: Any) -> None:
        """Raise a ValueError unless `holds`.

        The message contains `received`, or else the `values` by name.
        """
        if not holds:
            named = ", ".join(f"{name}={value!r}" for name, value in values.items())
            self._refuse(expected, received or named)

    def _expect_inputs(self, *shapes: Any) -> None:
        """Raise a ValueError if a shape is None.

        TimeDistributed and Sequential call `build` with only one shape.
        """
        if None in shapes:
            self._refuse(
                f"to be called as layer({', '.join(_inputs(type(self).call))})", "one input"
            )

    def _expect_one_of(self, name: str, value: Any, choices: Any) -> None:
        """Raise a ValueError unless the value is a string in `choices`."""
        valid = isinstance(value, str) and value in choices
        self._expect(valid, f"{name} to be one of {', '.join(choices)}", **{name: value})

    def _expect_count(self, name: str, value: Any, or_none: bool = False) -> None:
        """Raise a ValueError unless the value is an integer >= 1, or None if `or_none`."""
        counts = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
        expected = f"{name} >= 1, an integer" + (" or None" if or_none else "")
        self._expect(counts or (or_none and value is None), expected, **{name: value})

    def _expect_dense(self, *inputs: Any) -> None:
        """Raise a ValueError for ragged and sparse tensors."""
        expected = "padded tensors and masks, such as x.to_tensor() and "
        expected += "tf.sequence_mask(x.row_lengths()) of a RaggedTensor"
        for x in inputs:
            kind = type(x).__name__
            if kind in _NOT_DENSE or getattr(x, "ragged", False) or getattr(x, "is_nested", False):
                self._refuse(expected, kind)

    def _expect_number(
        self, name: str, value: Any, least: float, below: float | None = None
    ) -> None:
        """Raise a ValueError unless the value is a number with `least <= value < below`."""
        number = isinstance(value, Real) and not isinstance(value, bool)
        valid = number and least <= value and (below is None or value < below)
        expected = f"{name} >= {least}" if below is None else f"{least} <= {name} < {below}"
        self._expect(valid, expected, **{name: value})

    def _expect_dtype(self, *layers: Any) -> None:
        """Raise a ValueError if an inner layer has another compute dtype than this layer."""
        expected = f"inner layers with its dtype, {self.compute_dtype}: give it to all, or call "
        expected += "keras.config.set_dtype_policy"
        for layer in layers:
            dtype = getattr(layer, "compute_dtype", self.compute_dtype)
            received = f"{type(layer).__name__} of {dtype}"
            self._expect(dtype == self.compute_dtype, expected, received)

    def _checked_mask(self, name: str, mask: Any, shape: Shape) -> Tensor | None:
        """Return a mask, given as a tensor, array or list, as a boolean tensor; None for None.

        The mask of a grid, given as `(B, H, W)` or `(B, H · W)`, is returned as `(B, H · W)`.
        Raises a ValueError unless the mask has the shape `shape`.
        """
        if mask is None or (len(shape) == 2 and tuple(getattr(mask, "shape", ())) == tuple(shape)):
            return mask if mask is None else ops.cast(mask, "bool")
        shapes = [tuple(shape)]
        if len(shape) == 3:
            shapes.append((shape[0], flat_length((*shape, None))))
        return flat_mask(self._mask_like(name, mask, shapes))

    def _checked_attention_mask(self, mask: Any, shape: Shape) -> Tensor:
        """Return an attention mask as boolean `(B | 1, Tq | 1, Tv)`.

        `shape` is `(B, Tq, Tv)`, or `(B, Tv)` for one step. The given mask may lack the batch axis.
        All axes of the given mask except the last may have size 1.
        """
        *lead, last = shape
        choices = [(size, 1) for size in lead]
        shapes = [(*sizes, last) for sizes in itertools.product(*choices)]
        if len(lead) == 2:
            shapes += [(size, last) for size in choices[1]]
        mask = self._mask_like("attention_mask", mask, shapes)
        if len(mask.shape) == 3:
            return mask
        return ops.expand_dims(mask, 1 if len(shape) == 2 else 0)

    def _mask_like(self, name: str, mask: Any, shapes: list[Any]) -> Tensor:
        """Return the mask as a boolean tensor, or raise a ValueError unless it has one of `shapes`.

        The error message contains the first of the shapes.
        """
        shape, hint = shapes[0], ""
        if isinstance(mask, (list, tuple)):
            try:
                mask = ops.convert_to_tensor(mask)
            except Exception:  # each backend raises an exception of its own
                self._refuse(f"one {name} {shape}", f"a list of {len(mask)} that is no tensor")
        mask = ops.cast(mask, "bool")
        if len(mask.shape) == 1 and len(shape) == 2:
            hint = f". Lengths are made a mask by keras.ops.arange({shape[1]}) < lengths[:, None]"
        valid, received = any(fits(mask.shape, each) for each in shapes), tuple(mask.shape)
        self._expect(valid, f"{name} {shape}", f"{name} {received}{hint}")
        return mask

    def _expect_states(self, states: Any, expected: list[Any], form: str, source: str) -> None:
        """Raise a ValueError unless the states have the expected shapes; None fits any size.

        The error message contains the `form` of the states and their `source`.
        """
        states = [] if states is None else tree.flatten(states)
        shapes = [tuple(getattr(x, "shape", ())) for x in states]
        if len(shapes) != len(expected) or not all(map(fits, shapes, expected)):
            wanted, received = (", ".join(map(str, each)) or "()" for each in (expected, shapes))
            self._refuse(f"{form} {wanted}, {source}", received)

    def output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs of a call; `compute_output_spec` passes arguments by name."""
        raise NotImplementedError

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs of a call."""
        arguments = inspect.signature(self.call).bind(*args, **kwargs).arguments
        note_length(self, next(iter(arguments.values())))
        outputs = self.output_spec(**arguments)
        count = len(outputs) if type(outputs) is tuple else 1
        # In a model, Keras connects at most as many outputs of a layer as its first call had.
        first = self.__dict__.setdefault("_outputs_of_first_call", count)
        expected = "return_attention_scores=True at its first call in a model, or a second layer "
        expected += "with its configuration and weights: layer.from_config(…), set_weights(…)"
        self._expect(count <= first, expected, f"{count} outputs after a first call with {first}")
        return outputs

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes of a call's outputs for inputs of these shapes."""
        names = list(inspect.signature(self.call).parameters)
        shapes = {**dict(zip(names, args, strict=False)), **kwargs}
        symbols = {n.removesuffix("_shape"): keras.KerasTensor(s) for n, s in shapes.items() if s}
        return tree.map_structure(lambda x: x.shape, self.output_spec(**symbols))

    def _refuse_unbuilt(self) -> None:
        expected = "to be called, or build(...) with shapes, before it takes single steps"
        self._refuse(expected, "a layer without weights")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, serialized."""
        names = [name for name in _parameters(type(self)) if hasattr(self, name)]
        own = {n: keras.saving.serialize_keras_object(getattr(self, n)) for n in names}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> BaseLayer:
        """Return a layer with the configuration from `get_config`."""
        deserialize = keras.saving.deserialize_keras_object
        return cls(**{n: deserialize(x) if isinstance(x, dict) else x for n, x in config.items()})


@functools.cache
def _inputs(call: Any) -> list[str]:
    """Return the names of the arguments of a layer's `call` that have no default."""
    parameters = list(inspect.signature(call).parameters.values())[1:]
    return [each.name for each in parameters if each.default is each.empty]


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the named parameters of the constructors of a class and its base classes."""
    constructors = [
        inspect.signature(base.__init__).parameters.values()
        for base in cls.__mro__
        if issubclass(base, BaseLayer) and "__init__" in vars(base)
    ]
    named = [each for parameters in constructors for each in list(parameters)[1:]]
    return {each.name: each for each in named[::-1] if each.kind is not each.VAR_KEYWORD}


def note_length(layer: keras.layers.Layer, sequence: Any) -> None:
    """Record the number of steps of a symbolic call, or None, for `expect_known_length`."""
    vars(layer).setdefault("_symbolic_lengths", set()).add(sequence.shape[1:2])


def expect_known_length(layer: keras.layers.Layer, sequence: Tensor) -> None:
    """Raise a ValueError if an export to ONNX would unroll a loop over an unknown length.

    Keras traces an unknown length as 1. The lengths that `note_length` recorded distinguish an
    unknown length from a true length of 1.
    """
    lengths = vars(layer).get("_symbolic_lengths", {(None,)})
    if sequence.shape[1] == 1 and (None,) in lengths and backend.traces_onnx():
        raise ValueError(
            f"{type(layer).__name__} expected a known number of steps in an export from PyTorch to "
            "ONNX, where its loop is unrolled: give the input a length, or export a SavedModel "
            "from TensorFlow or JAX. Received: an unknown number"
        )


def keeps(method: Any, own: Any) -> bool:
    """Return whether a bound method is the base class's function `own`, not an override."""
    # Not getattr(…, None), for which torch.compile takes the default.
    return isinstance(method, MethodType) and method.__func__ is own


class AveragingLayer(BaseLayer):
    """Base class of the layers that average positions by weights: distribution, heads, dropout.

    Args:
        distribution: a name in `keras_attention.distributions.BY_NAME`, or a function
            `(scores, mask) -> weights`.
        num_heads: number of heads, among which the last axis is split.
        dropout: fraction of the weights dropped in training.
        seed: integer seed of the dropout.
        **kwargs: as for `BaseLayer`.
    """

    def __init__(
        self,
        distribution: Any = "softmax",
        num_heads: int = 1,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        valid = isinstance(distribution, str) and distribution in distributions.BY_NAME
        if callable(distribution):  # keras.activations.softmax(x, axis) would get the mask as axis
            valid = list(inspect.signature(distribution).parameters)[1:2] not in ([], ["axis"])
        expected = f"{', '.join(distributions.BY_NAME)} or function(scores, mask)"
        self._expect(valid, f"distribution to be {expected}", distribution=distribution)
        self._expect_count("num_heads", num_heads)
        self._expect_number("dropout", dropout, 0, 1)
        self._expect(seed is None or isinstance(seed, Integral), "an integer seed", seed=seed)
        self.distribution = distribution
        # distribute(scores, mask or None) returns weights.
        self.distribute = distributions.BY_NAME.get(distribution, distribution)
        self.num_heads = num_heads
        self.dropout = dropout
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed) if dropout else None
        self.supports_masking = True

    def _expect_units(self, units: Any) -> None:
        """Raise a ValueError unless `units` is an integer >= 1 that the number of heads divides."""
        self._expect_count("units", units)
        divided, num_heads = units % self.num_heads == 0, self.num_heads
        self._expect(divided, "units that num_heads divides", units=units, num_heads=num_heads)

    def _expect_divided(self, name: str, shape: tuple[Any, ...]) -> None:
        """Raise a ValueError unless the last axis is divisible by the number of heads."""
        expected = f"{name} of a width that num_heads={self.num_heads} divides"
        self._expect(shape[-1] % self.num_heads == 0, expected, f"a shape {tuple(shape)}")

    def weights_spec(self, batch: Any, steps: Any, memory: tuple[Any, ...]) -> keras.KerasTensor:
        """Return the symbolic weights `(B, [heads,] *steps, Tv)`.

        `steps` is `(T,)`, or `()` for one step. `memory` is the shape of the memory or grid.
        """
        heads = [self.num_heads] if self.num_heads > 1 else []
        return keras.KerasTensor((batch, *heads, *steps, flat_length(memory)), self.compute_dtype)

    def split_heads(self, x: Tensor) -> Tensor:
        """Return `x` `(B, T, ·)`, its last axis split among the heads: `(B, heads, T, ·)`.

        With one head, return `x`.
        """
        if self.num_heads == 1:
            return x
        # Without a reshape: tf2onnx merges two consecutive reshapes into one wrong reshape.
        return ops.stack(ops.split(x, self.num_heads, axis=-1), axis=1)

    def dropped(self, shape: tuple[Any, ...]) -> Tensor:
        """Return random dropout factors of this shape: 0, or `1 / (1 - dropout)`."""
        ones = ops.ones(shape, self.compute_dtype)
        return keras.random.dropout(ones, self.dropout, seed=self.seed_generator)

    def average(self, weights: Tensor, value: Tensor) -> Tensor:
        """Return the contexts `(B, n, dv)`: weights `(B, [heads,] n, Tv)` times values.

        Values are `(B, [heads,] Tv, ·)`. The contexts of several heads are concatenated.
        """
        contexts = backend.average(weights, value)  # (B, [heads,] n, ·)
        if self.num_heads == 1:
            return contexts
        batch, heads, length, width = ops.shape(contexts)
        return ops.reshape(ops.moveaxis(contexts, 1, 2), (batch, length, heads * width))
