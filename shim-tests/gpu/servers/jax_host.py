"""JAX on one GPU: 4 GiB of weights, a compiled function, XLA's own allocator with memory taken beforehand as it does by default.

JAX takes three quarters of the GPU unless it is told otherwise; here 6 %, so that the buffer fits into main memory. The answer: a
digest of the function's output, and one of random numbers drawn on the GPU.
"""

import os

import lines

if "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
    os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.06"

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    lines.missing(f"JAX is not installed: {error}")
import numpy

WIDTH = 8192 // lines.SCALE
LAYERS = 32


@jax.jit
def forward(weights, x):
    for layer in weights:
        x = jnp.tanh(x @ layer) + x
    return jax.nn.softmax(x.astype(jnp.float32), axis=-1)


def main():
    device = jax.devices()[0]
    if lines.DEVICE != "cpu" and device.platform not in ("gpu", "cuda"):
        lines.missing(f"JAX sees no GPU, only {device.platform}")
    keys = jax.random.split(jax.random.PRNGKey(1), LAYERS)
    weights = [jax.random.normal(key, (WIDTH, WIDTH), jnp.bfloat16) * 0.02 for key in keys]
    x = jax.random.normal(jax.random.PRNGKey(2), (64, WIDTH), jnp.bfloat16)

    def answer():
        output = forward(weights, x)
        drawn = jax.random.normal(jax.random.PRNGKey(3), (1024,))
        return [lines.digest(numpy.asarray(array).tobytes()) for array in (output, drawn)]

    answer()
    lines.serve(answer)


main()
