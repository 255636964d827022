"""Cases for the operators of ai.onnx.ml."""

import numpy as np
from onnx import TensorProto, helper

from one_node import map_type, ml, rng
from tree_kinds import TRANSFORMS, linked_cases, tree_cases

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64


def text(*words):
    return np.array(words, dtype=object)


def seq_of_maps(key):
    kind = map_type(key, TensorProto.FLOAT)
    return helper.make_sequence_type_proto(kind)


def feature_cases():
    for dtype in (F32, F64, I32, I64):
        x = rng("extract").integers(-9, 9, (3, 5)).astype(dtype)
        name = np.dtype(dtype).name
        yield ml(f"array_feature_extractor_{name}", "ArrayFeatureExtractor", [x, np.array([4, 0, 0])])
        yield ml(f"normalizer_max_{name}", "Normalizer", [x], norm="MAX")
        yield ml(f"normalizer_l1_{name}", "Normalizer", [x], norm="L1")
        yield ml(f"normalizer_l2_{name}", "Normalizer", [x], norm="L2")
        yield ml(f"scaler_{name}", "Scaler", [x], offset=[1.0, 0.5, -2.0, 0.0, 3.0], scale=[2.0, 1.0, 0.1, -1.0, 3.0])
        yield ml(f"scaler_one_{name}", "Scaler", [x], offset=[0.25], scale=[3.0])
        if dtype != I32:
            yield ml(f"one_hot_{name}", "OneHotEncoder", [x], cats_int64s=[-3, 0, 2, 5], zeros=1)
        widths = {"inputdimensions": [5, 3]}
        yield ml(f"feature_vectorizer_{name}", "FeatureVectorizer", [x, x[:, :3]], **widths)
    x = rng("vector").standard_normal((2, 3, 4)).astype(F32)
    yield ml("array_feature_extractor_3d", "ArrayFeatureExtractor", [x, np.array([[3, 1]])])
    yield ml("array_feature_extractor_1d", "ArrayFeatureExtractor", [x[0, 0], np.array([2])])
    yield ml(
        "array_feature_extractor_text", "ArrayFeatureExtractor", [text("a", "b", "c").reshape(1, 3), np.array([2, 1])]
    )
    yield ml("binarizer", "Binarizer", [x], threshold=0.3)
    yield ml("normalizer_zeros", "Normalizer", [np.zeros((2, 3), F32)], norm="L2")
    yield ml("normalizer_vector", "Normalizer", [x[0, 0]], norm="L1")
    yield ml("normalizer_negative_max", "Normalizer", [-np.abs(x[0])], norm="MAX")
    yield ml("scaler_vector", "Scaler", [x[0, 0]], offset=[0.0, 1.0, 2.0, 3.0], scale=[1.0, 2.0, 3.0, 4.0])
    yield ml("one_hot_text", "OneHotEncoder", [text("a", "x", "b").reshape(3, 1)], cats_strings=["b", "a"], zeros=1)
    yield ml("one_hot_all_known", "OneHotEncoder", [np.array([1, 2])], cats_int64s=[2, 1], zeros=0)
    yield ml("feature_vectorizer_cut", "FeatureVectorizer", [x[0], x[1]], inputdimensions=[2, 6])
    y = np.array([[1.0, np.nan, 3.0], [np.nan, 2.0, 0.0]], F32)
    yield ml("imputer_nan", "Imputer", [y], imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=float("nan"))
    yield ml("imputer_value", "Imputer", [y], imputed_value_floats=[7.0], replaced_value_float=3.0)
    yield ml(
        "imputer_int64", "Imputer", [np.array([[1, 2], [2, 3]])], imputed_value_int64s=[5, 6], replaced_value_int64=2
    )


def label_cases():
    words, numbers = text("b", "zz", "a", "b"), np.array([2, 9, 1, 2])
    yield ml(
        "category_mapper_to_int",
        "CategoryMapper",
        [words],
        cats_strings=["a", "b"],
        cats_int64s=[10, 20],
        default_int64=-7,
    )
    yield ml(
        "category_mapper_to_text",
        "CategoryMapper",
        [numbers],
        cats_strings=["one", "two"],
        cats_int64s=[1, 2],
        default_string="none",
    )
    yield ml("label_encoder_1_to_int", "LabelEncoder", [words], classes_strings=["a", "b"], default_int64=-7)
    yield ml("label_encoder_1_to_text", "LabelEncoder", [numbers], classes_strings=["o", "i", "z"], default_string="?")
    keys = {"strings": ["a", "b"], "int64s": [1, 2], "floats": [0.5, 2.0]}
    inputs = {"strings": words, "int64s": numbers, "floats": np.array([2.0, 7.0, 0.5], F32)}
    defaults = {"strings": {"default_string": "d"}, "int64s": {"default_int64": 3}, "floats": {"default_float": 1.5}}
    for a, b in (
        ("strings", "int64s"),
        ("int64s", "strings"),
        ("floats", "strings"),
        ("strings", "floats"),
        ("int64s", "floats"),
        ("floats", "int64s"),
        ("int64s", "int64s"),
        ("floats", "floats"),
        ("strings", "strings"),
    ):
        attributes = {f"keys_{a}": keys[a], f"values_{b}": keys[b], **defaults[b]}
        for opset in (2, 4):
            yield ml(f"label_encoder_{opset}_{a}_{b}", "LabelEncoder", [inputs[a]], opset, **attributes)
    nan = np.array([np.nan, 1.0, 0.0], F32)
    yield ml(
        "label_encoder_4_nan",
        "LabelEncoder",
        [nan],
        4,
        keys_floats=[float("nan"), 0.0],
        values_int64s=[1, 2],
        default_int64=0,
    )

    def tensor(kind, values):
        return helper.make_tensor("t", kind, [len(values)], values)

    yield ml(
        "label_encoder_4_double",
        "LabelEncoder",
        [np.array([1.5, 2.5])],
        4,
        keys_tensor=tensor(TensorProto.DOUBLE, [1.5]),
        values_tensor=tensor(TensorProto.DOUBLE, [8.0]),
        default_tensor=tensor(TensorProto.DOUBLE, [9.0]),
    )
    yield ml(
        "label_encoder_4_int16",
        "LabelEncoder",
        [words],
        4,
        keys_strings=["a", "b"],
        values_tensor=tensor(TensorProto.INT16, [7, 8]),
        default_tensor=tensor(TensorProto.INT16, [-2]),
    )


def map_cases():
    yield ml("cast_map_dense", "CastMap", [{3: F32(1.5), 1: F32(2.5)}], cast_to="TO_FLOAT", map_form="DENSE")
    yield ml(
        "cast_map_sparse", "CastMap", [{3: F32(1.5), 1: F32(2.5)}], cast_to="TO_INT64", map_form="SPARSE", max_map=5
    )
    yield ml(
        "dict_vectorizer_text", "DictVectorizer", [{"a": F32(4), "c": F32(8)}], string_vocabulary=["a", "c", "b", "z"]
    )
    yield ml("dict_vectorizer_int", "DictVectorizer", [{7: F32(4), 1: F32(8)}], int64_vocabulary=[1, 2, 7])
    x = rng("zip").standard_normal((2, 3)).astype(F32)
    yield ml(
        "zip_map_text", "ZipMap", [x], classlabels_strings=["a", "b", "c"], types={0: seq_of_maps(TensorProto.STRING)}
    )
    yield ml("zip_map_int", "ZipMap", [x], classlabels_int64s=[5, 3, 9], types={0: seq_of_maps(TensorProto.INT64)})


def linear_cases():
    random = rng("linear")
    x = random.standard_normal((4, 3)).astype(F32)
    w = [round(float(v), 3) for v in random.standard_normal(9)]
    for transform in TRANSFORMS:
        # Probabilities for the transform that needs them.
        y = np.abs(x) / 4 if transform == "PROBIT" else x
        c = [abs(v) / 4 for v in w] if transform == "PROBIT" else w
        yield ml(
            f"linear_classifier_{transform.lower()}",
            "LinearClassifier",
            [y],
            outputs=2,
            coefficients=c,
            intercepts=[0.1, 0.2, 0.05],
            classlabels_ints=[4, 5, 6],
            post_transform=transform,
        )
        yield ml(
            f"linear_regressor_{transform.lower()}",
            "LinearRegressor",
            [y],
            coefficients=c,
            targets=3,
            intercepts=[0.1, 0.2, 0.05],
            post_transform=transform,
        )
        if transform != "PROBIT":
            yield ml(
                f"linear_classifier_binary_{transform.lower()}",
                "LinearClassifier",
                [x],
                outputs=2,
                coefficients=w[:3],
                intercepts=[0.1],
                classlabels_strings=["no", "yes"],
                post_transform=transform,
            )
    for dtype in (F64, I32, I64):
        y = (x * 3).astype(dtype)
        yield ml(
            f"linear_classifier_{np.dtype(dtype).name}",
            "LinearClassifier",
            [y],
            outputs=2,
            coefficients=w,
            intercepts=[0.1, 0.2, 0.05],
            classlabels_strings=["a", "b", "c"],
        )
    yield ml("linear_classifier_no_labels", "LinearClassifier", [x], outputs=2, coefficients=w[:3], intercepts=[0.1])
    yield ml("linear_regressor_plain", "LinearRegressor", [x], coefficients=w[:3])
    yield ml("linear_regressor_vector", "LinearRegressor", [x[0]], coefficients=w[:6], targets=2)


def svm_cases():
    random = rng("svm")
    x = random.standard_normal((5, 2)).astype(F32)

    def numbers(count):
        return [round(float(v), 3) for v in random.standard_normal(count)]

    kernels = {"LINEAR": [0.5, 0.0, 3.0], "POLY": [0.5, 0.25, 3.0], "RBF": [0.4, 0.0, 0.0], "SIGMOID": [0.3, 0.1, 0.0]}
    for kernel, params in kernels.items():
        common = {"kernel_type": kernel, "kernel_params": params}
        yield ml(
            f"svm_regressor_{kernel.lower()}",
            "SVMRegressor",
            [x],
            **common,
            n_supports=3,
            support_vectors=numbers(6),
            coefficients=numbers(3),
            rho=[0.3],
        )
        yield ml(
            f"svm_one_class_{kernel.lower()}",
            "SVMRegressor",
            [x],
            **common,
            n_supports=3,
            support_vectors=numbers(6),
            coefficients=numbers(3),
            rho=[-0.1],
            one_class=1,
        )
        three = {
            **common,
            "vectors_per_class": [2, 1, 2],
            "support_vectors": numbers(10),
            "coefficients": numbers(10),
            "rho": numbers(3),
        }
        yield ml(
            f"svm_classifier_{kernel.lower()}", "SVMClassifier", [x], outputs=2, **three, classlabels_ints=[7, 8, 9]
        )
        yield ml(
            f"svm_classifier_{kernel.lower()}_proba",
            "SVMClassifier",
            [x],
            outputs=2,
            **three,
            classlabels_strings=["a", "b", "c"],
            prob_a=[-1.0, -0.5, -2.0],
            prob_b=[0.1, 0.0, -0.2],
        )
        two = {
            **common,
            "vectors_per_class": [2, 1],
            "support_vectors": numbers(6),
            "coefficients": numbers(3),
            "rho": [0.1],
        }
        yield ml(
            f"svm_classifier_{kernel.lower()}_two", "SVMClassifier", [x], outputs=2, **two, classlabels_ints=[3, 4]
        )
        yield ml(
            f"svm_classifier_{kernel.lower()}_two_proba",
            "SVMClassifier",
            [x],
            outputs=2,
            **two,
            classlabels_ints=[3, 4],
            prob_a=[-1.5],
            prob_b=[0.2],
        )
    for transform in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        yield ml(
            f"svm_classifier_{transform.lower()}",
            "SVMClassifier",
            [x],
            outputs=2,
            **three,
            classlabels_ints=[7, 8, 9],
            post_transform=transform,
        )
        yield ml(
            f"svm_classifier_two_{transform.lower()}",
            "SVMClassifier",
            [x],
            outputs=2,
            **two,
            classlabels_ints=[3, 4],
            post_transform=transform,
        )
    positive = {**two, "coefficients": [0.5, 0.25, 0.75]}
    yield ml("svm_classifier_positive", "SVMClassifier", [x], outputs=2, **positive, classlabels_ints=[3, 4])
    yield ml(
        "svm_classifier_liblinear",
        "SVMClassifier",
        [x],
        outputs=2,
        coefficients=numbers(6),
        rho=[0.2],
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        classlabels_ints=[1, 2, 3],
    )
    yield ml(
        "svm_classifier_liblinear_two",
        "SVMClassifier",
        [x],
        outputs=2,
        coefficients=numbers(4),
        rho=[0.2],
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        classlabels_ints=[1, 2],
    )
    yield ml(
        "svm_regressor_liblinear",
        "SVMRegressor",
        [x],
        coefficients=numbers(2),
        rho=[0.2],
        n_supports=0,
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
    )
    for dtype in (F64, I32, I64):
        yield ml(
            f"svm_classifier_{np.dtype(dtype).name}",
            "SVMClassifier",
            [(x * 3).astype(dtype)],
            outputs=2,
            **three,
            classlabels_ints=[7, 8, 9],
        )


def ml_cases():
    for kind in (feature_cases, label_cases, map_cases, linear_cases, svm_cases, tree_cases, linked_cases):
        yield from kind()
