"""A small decoder-only language model, sharded data x model over every chip of the workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.experimental.mesh_utils import create_hybrid_device_mesh
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; `heads` and `4 * width` must divide by the model axis of the mesh."""

    vocabulary: int = 256
    length: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 2


def split(*axes: str | None, scale: float = 0.02) -> Callable[..., Any]:
    """Normally distributed initial weights, with a note on which mesh axis each dimension is split over."""
    return nn.with_partitioning(nn.initializers.normal(scale), axes)


class Block(nn.Module):
    """Attention, then a feed-forward layer; heads and hidden units are split over the model axis."""

    shape: Shape

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width, heads = self.shape.width, self.shape.heads
        y = nn.LayerNorm(use_bias=False)(x)
        qkv = nn.DenseGeneral((3, heads, width // heads), use_bias=False, kernel_init=split(None, None, "model", None))(
            y
        )
        y = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        x = x + nn.DenseGeneral(width, axis=(-2, -1), use_bias=False, kernel_init=split("model", None, None))(y)
        y = nn.LayerNorm(use_bias=False)(x)
        y = nn.gelu(nn.Dense(4 * width, use_bias=False, kernel_init=split(None, "model"))(y))
        return x + nn.Dense(width, use_bias=False, kernel_init=split("model", None))(y)


class TinyLM(nn.Module):
    """Next-token logits (float32) for a batch of token rows."""

    shape: Shape

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        size = self.shape
        embedding = split(None, None, scale=0.3)
        x = nn.Embed(size.vocabulary, size.width, embedding_init=embedding)(tokens)
        x += nn.Embed(size.length, size.width, embedding_init=embedding)(jnp.arange(tokens.shape[1]))
        for _ in range(size.layers):
            x = Block(size)(x)
        x = nn.LayerNorm(use_bias=False)(x)
        return nn.Dense(size.vocabulary, use_bias=False, kernel_init=split(None, None, scale=0.1))(x)


def make_mesh() -> Mesh:
    """Every chip as a data x model grid.

    The model axis lies inside a host, where links are fastest; the data axis crosses hosts and, outermost, slices.
    """
    model = 2 if jax.local_device_count() % 2 == 0 else 1
    data = jax.device_count() // model
    slices = len({getattr(device, "slice_index", 0) for device in jax.devices()})  # 1 where slices are emulated
    if slices > 1:
        return Mesh(create_hybrid_device_mesh((data // slices, model), (slices, 1)), ("data", "model"))
    return jax.make_mesh((data, model), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))


@cache
def parts(shape: Shape, learning_rate: float, steps: int) -> tuple[TinyLM, optax.GradientTransformation]:
    """The model and AdamW with a warm-up and a cosine decay; made once, as a compiled step is bound to them."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, max(steps // 10, 1), steps)
    return TinyLM(shape), optax.adamw(schedule)


def new_state(shape: Shape, mesh: Mesh, learning_rate: float, steps: int, seed: int = 0) -> TrainState:
    """Fresh weights and optimizer, made where they belong: no host ever holds more than its own shards."""
    model, optimizer = parts(shape, learning_rate, steps)

    def create(key: jax.Array) -> TrainState:
        weights = model.init(key, jnp.zeros((1, shape.length), jnp.int32))["params"]
        return TrainState.create(apply_fn=model.apply, params=weights, tx=optimizer)

    key = jax.random.key(seed, impl="rbg")  # compiles in half the time of the default
    layout = nn.get_sharding(jax.eval_shape(create, key), mesh)
    once = {"xla_backend_optimization_level": 0}
    return nn.unbox(jax.jit(create, out_shardings=layout, compiler_options=once)(key))


def loss_of(weights: Any, apply: Callable[..., jax.Array], crops: jax.Array) -> jax.Array:
    """Mean nats per predicted token."""
    logits = apply({"params": weights}, crops[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, crops[:, 1:]).mean()


@partial(jax.jit, donate_argnums=0)
def train_step(state: TrainState, crops: jax.Array) -> tuple[TrainState, jax.Array]:
    """One step of gradient descent; the loss is that before the step."""
    loss, gradients = jax.value_and_grad(loss_of)(state.params, state.apply_fn, crops)
    return state.apply_gradients(grads=gradients), loss


@jax.jit
def evaluate(state: TrainState, crops: jax.Array) -> jax.Array:
    """The loss without learning from it."""
    return loss_of(state.params, state.apply_fn, crops)


def place(crops: np.ndarray, mesh: Mesh) -> jax.Array:
    """Rows spread over the data axis; every host puts only the rows of its own chips on them."""
    return jax.make_array_from_callback(crops.shape, NamedSharding(mesh, P("data")), lambda index: crops[index])
