#!/usr/bin/env python3
"""Makes small models whose results jump, where comparisons easily raise false alarms: trees and quantized networks.

    python scripts/make_delicate_models.py OUT

Needs scikit-learn, skl2onnx, pandas, onnx and onnxruntime. Writes OUT/sklearn.*.onnx (classifiers with and without ZipMap, regressors, pipelines with scalers,
imputers and encoders of numbers and words) and OUT/quantized.*.onnx (a convolutional network and an encoder, quantized by ONNX Runtime: static as QDQ
per tensor and per channel and as QOperator, dynamic, and weights alone in 4 bits). Everything is seeded; nothing is downloaded.
"""

import logging
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def classical(folder):
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.datasets import load_diabetes, load_iris, load_wine
    from sklearn.ensemble import (
        AdaBoostClassifier,
        ExtraTreesRegressor,
        GradientBoostingClassifier,
        HistGradientBoostingRegressor,
        IsolationForest,
        RandomForestClassifier,
        VotingClassifier,
    )
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, PolynomialFeatures, StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    (iris, kinds), (wine, vineyards), (people, progress) = (
        load(return_X_y=True) for load in (load_iris, load_wine, load_diabetes)
    )
    names = np.array(["setosa", "versicolor", "virginica"])[kinds]
    seed = {"random_state": 0}
    fitted = {
        "logistic": (make_pipeline(StandardScaler(), LogisticRegression()), wine, vineyards),
        "logistic_words": (LogisticRegression(max_iter=1000), iris, names),
        "tree": (DecisionTreeClassifier(**seed), iris, kinds),
        "forest": (RandomForestClassifier(20, **seed), wine, vineyards),
        "forest_words": (RandomForestClassifier(10, **seed), iris, names),
        "boosted": (GradientBoostingClassifier(n_estimators=10, **seed), iris, kinds),
        "adaboost": (AdaBoostClassifier(n_estimators=5, **seed), iris, kinds),
        "voting": (VotingClassifier([("a", DecisionTreeClassifier(**seed)), ("b", GaussianNB())], voting="soft"), iris, kinds),
        "bayes": (GaussianNB(), iris, kinds),
        "neighbours": (KNeighborsClassifier(3), iris, kinds),
        "support": (make_pipeline(StandardScaler(), SVC(probability=True, **seed)), iris, kinds),
        "network": (make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=300, **seed)), iris, kinds),
        "imputed": (make_pipeline(SimpleImputer(), RandomForestClassifier(5, **seed)), iris, kinds),
        "binned": (make_pipeline(KBinsDiscretizer(4, encode="ordinal", quantile_method="linear"), LogisticRegression(max_iter=500)), iris, kinds),
        "polynomial": (make_pipeline(PolynomialFeatures(2), LinearRegression()), people, progress),
        "extra_trees": (ExtraTreesRegressor(10, **seed), people, progress),
        "histograms": (HistGradientBoostingRegressor(max_iter=10, **seed), people, progress),
        "isolation": (IsolationForest(n_estimators=10, **seed), iris, None),
    }
    for name, (model, data, target) in fitted.items():
        data = data.astype(np.float32)
        model.fit(data, target)
        kinds_of_maps = {"zip": {}, "plain": {"zipmap": False}} if hasattr(model, "predict_proba") else {"": {}}
        for kind, options in kinds_of_maps.items():
            written(folder, f"sklearn.{name}.{kind}".rstrip("."), lambda: to_onnx(model, data[:1], options={id(model): options} if options else None, target_opset={"": 18, "ai.onnx.ml": 3}))
    random = np.random.default_rng(0)
    table = np.empty((300, 4), object)
    table[:, 0], table[:, 1] = random.normal(50, 20, 300).astype(np.float32), random.normal(3e4, 1e4, 300).astype(np.float32)
    table[:, 2], table[:, 3] = random.choice(["red", "green", "blue"], 300), random.choice(["north", "south"], 300)
    likes = (table[:, 0].astype(float) > 45) ^ (table[:, 2] == "red")
    columns = ColumnTransformer([("numbers", StandardScaler(), [0, 1]), ("words", OneHotEncoder(handle_unknown="ignore"), [2, 3])])
    for name, last in (("mixed_forest", RandomForestClassifier(10, **seed)), ("mixed_logistic", LogisticRegression())):
        import pandas

        frame = pandas.DataFrame(table, columns=["age", "income", "colour", "place"]).astype({"age": "float32", "income": "float32"})
        columns.transformers = [("numbers", StandardScaler(), ["age", "income"]), ("words", OneHotEncoder(handle_unknown="ignore"), ["colour", "place"])]
        model = make_pipeline(columns, last).fit(frame, likes.astype(int))
        inputs = [("age", FloatTensorType([None, 1])), ("income", FloatTensorType([None, 1]))]
        inputs += [("colour", StringTensorType([None, 1])), ("place", StringTensorType([None, 1]))]
        written(folder, f"sklearn.{name}.zip", lambda: to_onnx(model, initial_types=inputs, target_opset={"": 18, "ai.onnx.ml": 3}))


def written(folder, name, make):
    try:
        onnx.save(make(), folder / f"{name}.onnx")
    except Exception as error:  # noqa: BLE001
        print(f"{name} cannot be made: {str(error).splitlines()[0]}", file=sys.stderr)


def network(random):
    """A small convolutional network with a residual, pools and a classifier."""
    weights = {
        "w1": random.normal(0, 0.3, (16, 3, 3, 3)), "b1": random.normal(0, 0.1, 16),
        "w2": random.normal(0, 0.15, (16, 16, 3, 3)), "b2": random.normal(0, 0.1, 16),
        "w3": random.normal(0, 0.25, (10, 16)), "b3": random.normal(0, 0.1, 10),
    }  # fmt: skip
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], **same), helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], **same), helper.make_node("Add", ["c2", "p1"], ["a2"]),
        helper.make_node("Clip", ["a2", "zero", "six"], ["r2"]), helper.make_node("GlobalAveragePool", ["r2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]), helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]  # fmt: skip
    weights |= {"zero": np.float32(0), "six": np.float32(6)}
    return model("network", nodes, weights, "x", ["batch", 3, 32, 32], ["batch", 10])


def encoder(random, width=64, heads=4):
    """A block of an encoder: attention, two LayerNormalizations and a pair of products."""
    normal = lambda *shape: random.normal(0, shape[0] ** -0.5, shape)
    weights = {f"w{name}": normal(width, width) for name in "qkvo"} | {f"b{name}": random.normal(0, 0.1, width) for name in "qkvo"}
    weights |= {"up": normal(width, 2 * width), "down": normal(2 * width, width), "scale": np.float32((width // heads) ** -0.5)}
    weights |= {f"{kind}{place}": 1 + random.normal(0, 0.1, width) if kind == "g" else random.normal(0, 0.1, width) for kind in "gb" for place in "12"}
    ints = {"split": np.array([0, 0, heads, width // heads]), "join": np.array([0, 0, width])}
    nodes = []
    node = lambda op, inputs, output, **attributes: nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
    for name in "qkv":
        node("MatMul", ["x", f"w{name}"], f"m{name}")
        node("Add", [f"m{name}", f"b{name}"], f"a{name}")
        node("Reshape", [f"a{name}", "split"], f"r{name}")
        node("Transpose", [f"r{name}"], f"t{name}", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])
    node("MatMul", ["tq", "tk"], "scores")
    node("Mul", ["scores", "scale"], "scaled")
    node("Softmax", ["scaled"], "shares", axis=-1)
    node("MatMul", ["shares", "tv"], "mixed")
    node("Transpose", ["mixed"], "back", perm=[0, 2, 1, 3])
    node("Reshape", ["back", "join"], "joined")
    node("MatMul", ["joined", "wo"], "projected")
    node("Add", ["projected", "bo"], "biased")
    node("Add", ["biased", "x"], "sum1")
    node("LayerNormalization", ["sum1", "g1", "b1"], "norm1", axis=-1)
    node("MatMul", ["norm1", "up"], "wide")
    node("Relu", ["wide"], "bent")
    node("MatMul", ["bent", "down"], "narrow")
    node("Add", ["narrow", "norm1"], "sum2")
    node("LayerNormalization", ["sum2", "g2", "b2"], "y", axis=-1)
    return model("encoder", nodes, weights | ints, "x", ["batch", "seq", width], ["batch", "seq", width])


def model(name, nodes, weights, given, taken, made):
    stored = [numpy_helper.from_array(np.asarray(value, np.int64 if np.asarray(value).dtype.kind == "i" else np.float32), key) for key, value in weights.items()]
    ports = [[helper.make_tensor_value_info(port, TensorProto.FLOAT, shape)] for port, shape in ((given, taken), ("y", made))]
    graph = helper.make_graph(nodes, name, *ports, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def quantized(folder):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    class Reader(CalibrationDataReader):
        def __init__(self, shape):
            random = np.random.default_rng(1)
            self.left = iter([{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(4)])

        def get_next(self):
            return next(self.left, None)

    random = np.random.default_rng(0)
    for name, made, shape in (("network", network(random), (2, 3, 32, 32)), ("encoder", encoder(random), (2, 7, 64))):
        source = folder / f"float.{name}.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(made), source)
        ways = {
            "qdq": {"quant_format": QuantFormat.QDQ},
            "qdq_channels": {"quant_format": QuantFormat.QDQ, "per_channel": True, "weight_type": QuantType.QInt8},
            "qdq_uint8": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QUInt8},
            "qdq_int16": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QInt16, "weight_type": QuantType.QInt8},
            "qoperator": {"quant_format": QuantFormat.QOperator},
            "qoperator_channels": {"quant_format": QuantFormat.QOperator, "per_channel": True},
        }
        for way, options in ways.items():
            target = folder / f"quantized.{name}.{way}.onnx"
            attempt(target, lambda: quantize_static(source, target, Reader(shape), **options))
        for way, options in {"dynamic": {}, "dynamic_channels": {"per_channel": True, "weight_type": QuantType.QInt8}}.items():
            target = folder / f"quantized.{name}.{way}.onnx"
            attempt(target, lambda: quantize_dynamic(source, target, **options))

        def weights_alone(form, target):
            quantizer = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=True, quant_format=form)
            quantizer.process()
            quantizer.model.save_model_to_file(str(target))

        if name == "encoder":
            for way, form in {"int4": QuantFormat.QOperator, "int4_qdq": QuantFormat.QDQ}.items():
                target = folder / f"quantized.{name}.{way}.onnx"
                attempt(target, lambda: weights_alone(form, target))


def attempt(target, make):
    try:
        make()
    except Exception as error:  # noqa: BLE001
        print(f"{target.name} cannot be made: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    classical(out)
    quantized(out)
    print(f"{len(list(out.glob('*.onnx')))} models in {out}")
