#!/usr/bin/env python3
"""Exports small models with random weights by exporters other than PyTorch's.

    python scripts/export_others.py OUT [NAME...]

Writes OUT/FRAMEWORK.MODEL.onnx for every model, or for those whose name contains one of the given parts. A framework that is
not installed is reported and skipped; the frameworks do not all fit into one environment. What the models were made with:

    keras     tensorflow-cpu 2.21.0, keras 3.15.1, tf2onnx 1.17.0
    flax      jax 0.12.0.1, flax 0.12.12, jax2onnx 0.17.1 (Python 3.12)
    paddle    paddlepaddle 3.3.1, paddle2onnx 2.1.0, packaging
    sklearn   scikit-learn 1.9.1, skl2onnx 1.20.0

Every parameter and statistic gets noise, so that none is left at 0 or 1: the graphs are those of trained models. Batch, and
where there is one the sequence, are dynamic.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SEED = 11
OPSET = 17
MODELS: dict[str, Callable[[Path], None]] = {}


def model(name: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Lists a function that writes the model of this name."""

    def listed(write: Callable[[Path], None]) -> Callable[[Path], None]:
        MODELS[name] = write
        return write

    return listed


def noisy(values: np.ndarray, rng: np.random.Generator, positive: bool) -> np.ndarray:
    """The values with noise; those that must stay above 0 do."""
    noise = rng.normal(0.0, 0.05, values.shape).astype(values.dtype)
    return np.abs(values + noise) + 0.5 if positive else values + noise


# Keras, by way of tf2onnx.


def keras_export(network: Any, inputs: list[tuple[tuple[int | None, ...], str, str]], path: Path) -> None:
    import tensorflow as tf
    import tf2onnx

    rng = np.random.default_rng(SEED)
    for variable in network.weights:
        if "float" in str(variable.dtype):
            values = np.asarray(variable)
            variable.assign(noisy(values, rng, "variance" in variable.path))
    signature = [tf.TensorSpec(shape, dtype, name=name) for shape, dtype, name in inputs]

    @tf.function(input_signature=signature)
    def call(*tensors: Any) -> Any:
        given = tensors[0] if len(tensors) == 1 else list(tensors)
        return network(given, training=False)

    tf2onnx.convert.from_function(call, input_signature=signature, opset=OPSET, output_path=str(path))


@model("keras.mobilenet_v2")
def keras_mobilenet_v2(path: Path) -> None:
    import keras

    network = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), classes=10, alpha=0.35)
    keras_export(network, [((None, 64, 64, 3), "float32", "image")], path)


@model("keras.mobilenet_v3")
def keras_mobilenet_v3(path: Path) -> None:
    import keras

    network = keras.applications.MobileNetV3Small(weights=None, input_shape=(64, 64, 3), classes=10, minimalistic=False)
    keras_export(network, [((None, 64, 64, 3), "float32", "image")], path)


@model("keras.efficientnet_b0")
def keras_efficientnet(path: Path) -> None:
    import keras

    network = keras.applications.EfficientNetB0(weights=None, input_shape=(64, 64, 3), classes=10)
    keras_export(network, [((None, 64, 64, 3), "float32", "image")], path)


@model("keras.resnet50")
def keras_resnet50(path: Path) -> None:
    import keras

    network = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
    keras_export(network, [((None, 64, 64, 3), "float32", "image")], path)


@model("keras.lstm")
def keras_lstm(path: Path) -> None:
    import keras

    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(50, 16)(tokens)
    x = keras.layers.Bidirectional(keras.layers.LSTM(12, return_sequences=True))(x)
    x = keras.layers.LSTM(12)(x)
    x = keras.layers.Dense(5, activation="softmax")(x)
    keras_export(keras.Model(tokens, x), [((None, None), "int32", "tokens")], path)


@model("keras.gru")
def keras_gru(path: Path) -> None:
    import keras

    series = keras.Input((20, 6), name="series")
    x = keras.layers.GRU(12, return_sequences=True)(series)
    x = keras.layers.GRU(12, reset_after=False)(x)
    keras_export(keras.Model(series, keras.layers.Dense(3)(x)), [((None, 20, 6), "float32", "series")], path)


@model("keras.mha")
def keras_mha(path: Path) -> None:
    import keras

    ids, mask = keras.Input((None,), dtype="int32", name="ids"), keras.Input((None,), dtype="bool", name="mask")
    x = keras.layers.Embedding(100, 32)(ids)
    seen = mask[:, None, :]
    for _ in range(3):
        attended = keras.layers.MultiHeadAttention(4, 8)(x, x, attention_mask=seen)
        x = keras.layers.LayerNormalization()(x + attended)
        inner = keras.layers.Dense(128, activation=lambda y: keras.activations.gelu(y, approximate=True))(x)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(32)(inner))
    network = keras.Model([ids, mask], keras.layers.Dense(5)(x))
    keras_export(network, [((None, None), "int32", "ids"), ((None, None), "bool", "mask")], path)


@model("keras.vit")
def keras_vit(path: Path) -> None:
    import keras

    image = keras.Input((32, 32, 3), name="image")
    x = keras.layers.Conv2D(32, 8, strides=8)(image)
    x = keras.layers.Reshape((16, 32))(x)
    x = x + keras.layers.Embedding(16, 32)(np.arange(16)[None])
    # tf2onnx has no Erfc, with which the other form is made.
    gelu = lambda y: keras.activations.gelu(y, approximate=True)  # noqa: E731
    for _ in range(2):
        y = keras.layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + keras.layers.MultiHeadAttention(4, 8)(y, y)
        y = keras.layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + keras.layers.Dense(32)(keras.layers.Dense(64, activation=gelu)(y))
    x = keras.layers.GlobalAveragePooling1D()(x)
    keras_export(keras.Model(image, keras.layers.Dense(10)(x)), [((None, 32, 32, 3), "float32", "image")], path)


@model("keras.conv1d")
def keras_conv1d(path: Path) -> None:
    import keras

    series = keras.Input((40, 4), name="series")
    x = keras.layers.Conv1D(8, 3, padding="causal", activation="relu")(series)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.SeparableConv1D(8, 3, padding="same")(x)
    x = keras.layers.Dense(6, activation="silu")(x)
    x = keras.layers.GlobalMaxPooling1D()(x)
    keras_export(keras.Model(series, keras.layers.Dense(3)(x)), [((None, 40, 4), "float32", "series")], path)


@model("keras.unet")
def keras_unet(path: Path) -> None:
    import keras

    image = keras.Input((32, 32, 3), name="image")
    down = keras.layers.Conv2D(8, 3, padding="same", use_bias=False)(image)
    down = keras.layers.ReLU()(keras.layers.BatchNormalization()(down))
    deep = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(keras.layers.MaxPooling2D()(down))
    up = keras.layers.Conv2DTranspose(8, 2, strides=2, padding="same")(deep)
    x = keras.layers.Concatenate()([keras.layers.UpSampling2D(interpolation="bilinear")(deep), up, down])
    x = keras.layers.GroupNormalization(4)(keras.layers.DepthwiseConv2D(3, padding="same")(x))
    x = keras.layers.Conv2D(2, 1, activation="sigmoid")(keras.layers.PReLU(shared_axes=[1, 2])(x))
    keras_export(keras.Model(image, x), [((None, 32, 32, 3), "float32", "image")], path)


# Flax, by way of jax2onnx.


def flax_export(network: Any, shape: tuple[Any, ...], path: Path) -> None:
    import jax
    from flax import nnx
    from jax2onnx import to_onnx

    rng = np.random.default_rng(SEED)
    graph, state = nnx.split(network)

    def disturb(place: Any, values: Any) -> Any:
        if not hasattr(values, "dtype") or not np.issubdtype(values.dtype, np.floating):
            return values
        positive = "var" in jax.tree_util.keystr(place)
        return jax.numpy.asarray(noisy(np.asarray(values), rng, positive))

    network = nnx.merge(graph, jax.tree_util.tree_map_with_path(disturb, state))
    to_onnx(network, [shape], opset=21, return_mode="file", output_path=str(path))


@model("flax.cnn")
def flax_cnn(path: Path) -> None:
    from flax import nnx

    class Cnn(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv1 = nnx.Conv(3, 8, (3, 3), rngs=rngs)
            self.norm1 = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
            self.conv2 = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
            self.norm2 = nnx.GroupNorm(16, num_groups=4, rngs=rngs)
            self.dense1 = nnx.Linear(16 * 16 // 4 * 4, 24, rngs=rngs)
            self.dense2 = nnx.Linear(24, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.relu(self.norm1(self.conv1(x)))
            x = nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
            x = nnx.silu(self.norm2(self.conv2(x)))
            x = x.reshape(x.shape[0], -1)
            return self.dense2(nnx.gelu(self.dense1(x)))

    flax_export(Cnn(nnx.Rngs(SEED)), ("B", 16, 16, 3), path)


@model("flax.transformer")
def flax_transformer(path: Path) -> None:
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.norm1, self.norm2 = nnx.LayerNorm(32, rngs=rngs), nnx.RMSNorm(32, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(4, 32, 32, decode=False, rngs=rngs)
            self.wide, self.narrow = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.narrow(nnx.gelu(self.wide(self.norm2(x))))

    class Transformer(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first, self.second = Block(rngs), Block(rngs)
            self.norm, self.head = nnx.LayerNorm(32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.head(self.norm(self.second(self.first(x))))

    flax_export(Transformer(nnx.Rngs(SEED)), ("B", 7, 32), path)


@model("flax.mlp")
def flax_mlp(path: Path) -> None:
    from flax import nnx

    class Mlp(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first, self.norm = nnx.Linear(12, 24, rngs=rngs), nnx.LayerNorm(24, rngs=rngs)
            self.second = nnx.Linear(24, 4, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return nnx.softmax(self.second(nnx.elu(self.norm(self.first(x)))))

    flax_export(Mlp(nnx.Rngs(SEED)), ("B", "S", 12), path)


# PaddlePaddle, by way of paddle2onnx.


def paddle_export(network: Any, inputs: list[tuple[list[int], str]], path: Path) -> None:
    import paddle

    rng = np.random.default_rng(SEED)
    network.eval()
    for name, values in network.state_dict().items():
        if "float" in str(values.dtype):
            values.set_value(noisy(values.numpy(), rng, "variance" in name))
    specs = [paddle.static.InputSpec(shape, dtype, name=f"x{at}") for at, (shape, dtype) in enumerate(inputs)]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model"
        paddle.onnx.export(network, str(target), input_spec=specs, opset_version=OPSET)
        path.write_bytes(target.with_suffix(".onnx").read_bytes())


@model("paddle.mobilenet_v2")
def paddle_mobilenet_v2(path: Path) -> None:
    import paddle

    paddle_export(paddle.vision.models.mobilenet_v2(scale=0.25, num_classes=10), [([-1, 3, 64, 64], "float32")], path)


@model("paddle.mobilenet_v3")
def paddle_mobilenet_v3(path: Path) -> None:
    import paddle

    network = paddle.vision.models.mobilenet_v3_small(scale=0.5, num_classes=10)
    paddle_export(network, [([-1, 3, 64, 64], "float32")], path)


@model("paddle.resnet18")
def paddle_resnet18(path: Path) -> None:
    import paddle

    paddle_export(paddle.vision.models.resnet18(num_classes=10), [([-1, 3, 64, 64], "float32")], path)


@model("paddle.transformer")
def paddle_transformer(path: Path) -> None:
    import paddle

    layer = paddle.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, activation="gelu")
    network = paddle.nn.Sequential(
        paddle.nn.Embedding(50, 32), paddle.nn.TransformerEncoder(layer, 2), paddle.nn.Linear(32, 5)
    )
    paddle_export(network, [([-1, -1], "int64")], path)


@model("paddle.lstm")
def paddle_lstm(path: Path) -> None:
    import paddle

    class Reader(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.words = paddle.nn.Embedding(50, 16)
            self.lstm = paddle.nn.LSTM(16, 12, num_layers=1, direction="bidirect")
            self.out = paddle.nn.Linear(24, 5)

        def forward(self, x: Any) -> Any:
            states, _ = self.lstm(self.words(x))
            return self.out(states.mean(axis=1))

    paddle_export(Reader(), [([-1, 9], "int64")], path)


# scikit-learn, by way of skl2onnx.


def sklearn_export(estimator: Any, width: int, classes: int, path: Path) -> None:
    from skl2onnx import to_onnx

    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(200, width)).astype(np.float32)
    y = np.argmax(x[:, :classes] + rng.normal(0, 0.3, (200, classes)), axis=1) if classes else x @ rng.normal(size=width)
    estimator.fit(x, y)
    made = to_onnx(estimator, x[:1], target_opset={"": OPSET, "ai.onnx.ml": 3})
    path.write_bytes(made.SerializeToString())


@model("sklearn.logistic")
def sklearn_logistic(path: Path) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    sklearn_export(make_pipeline(MinMaxScaler(), StandardScaler(), LogisticRegression()), 8, 3, path)


@model("sklearn.mlp")
def sklearn_mlp(path: Path) -> None:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    sklearn_export(make_pipeline(Normalizer(), MLPClassifier((16, 8), max_iter=50, random_state=SEED)), 8, 3, path)


@model("sklearn.forest")
def sklearn_forest(path: Path) -> None:
    from sklearn.ensemble import RandomForestClassifier

    sklearn_export(RandomForestClassifier(10, max_depth=4, random_state=SEED), 8, 3, path)


@model("sklearn.svm")
def sklearn_svm(path: Path) -> None:
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    sklearn_export(make_pipeline(PCA(4), SVC(probability=True, random_state=SEED)), 8, 3, path)


@model("sklearn.process")
def sklearn_process(path: Path) -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    sklearn_export(GaussianProcessRegressor(ConstantKernel() * RBF(), alpha=0.1), 4, 0, path)


@model("sklearn.neighbours")
def sklearn_neighbours(path: Path) -> None:
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    sklearn_export(make_pipeline(PolynomialFeatures(2), KNeighborsClassifier(3)), 4, 3, path)


@model("sklearn.mixture")
def sklearn_mixture(path: Path) -> None:
    from sklearn.mixture import GaussianMixture

    sklearn_export(GaussianMixture(3, random_state=SEED), 4, 3, path)


NEEDS = {
    "keras": ("tensorflow", "keras", "tf2onnx"),
    "flax": ("jax", "flax", "jax2onnx"),
    "paddle": ("paddle", "paddle2onnx"),
    "sklearn": ("sklearn", "skl2onnx"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, write in MODELS.items():
        if options.names and not any(part in name for part in options.names):
            continue
        missing = [package for package in NEEDS[name.split(".")[0]] if importlib.util.find_spec(package) is None]
        if missing:
            print(f"{name}: skipped, {', '.join(missing)} not installed")
            continue
        try:
            write(options.out / f"{name}.onnx")
            print(f"{name}: written")
        except Exception:
            failed += 1
            print(f"{name}: failed")
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
