"""Cases for ensembles of trees."""

import numpy as np
from onnx import TensorProto, helper

from one_node import ml, rng

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]


def forest(random, trees, depth, features, votes, mode="BRANCH_LEQ", sign=True):
    """Full binary trees; `votes(leaf number)` lists the targets that a leaf votes for."""
    nodes, leaves = [], []
    for tree in range(trees):
        inner = 2**depth - 1
        for node in range(2 * inner + 1):
            if node < inner:
                kind = mode if isinstance(mode, str) else mode[node % len(mode)]
                value = float(np.round(random.standard_normal(), 1))
                nodes.append((tree, node, int(random.integers(features)), kind, value, 2 * node + 1, 2 * node + 2))
            else:
                nodes.append((tree, node, 0, "LEAF", 0.0, 0, 0))
                for target in votes(node - inner):
                    weight = float(np.round(random.standard_normal(), 2))
                    leaves.append((tree, node, target, weight if sign else abs(weight)))
    tree, node, feature, kind, value, yes, no = map(list, zip(*nodes, strict=True))
    attributes = {
        "nodes_treeids": tree,
        "nodes_nodeids": node,
        "nodes_featureids": feature,
        "nodes_modes": kind,
        "nodes_values": value,
        "nodes_truenodeids": yes,
        "nodes_falsenodeids": no,
    }
    return attributes, list(map(list, zip(*leaves, strict=True)))


def regressor(forest, **rest):
    attributes, (trees, nodes, targets, weights) = forest
    return {
        **attributes,
        "target_treeids": trees,
        "target_nodeids": nodes,
        "target_ids": targets,
        "target_weights": weights,
        **rest,
    }


def classifier(forest, **rest):
    attributes, (trees, nodes, targets, weights) = forest
    return {
        **attributes,
        "class_treeids": trees,
        "class_nodeids": nodes,
        "class_ids": targets,
        "class_weights": weights,
        **rest,
    }


def tree_cases():
    random = rng("trees")
    x = np.round(random.standard_normal((6, 4)), 1).astype(F32)
    every = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    for mode in every:
        one = regressor(forest(random, 3, 2, 4, lambda _: [0], mode), n_targets=1)
        yield ml(f"tree_regressor_{mode.lower()}", "TreeEnsembleRegressor", [x], 3, **one)
    two = regressor(forest(random, 4, 3, 4, lambda leaf: [0, 1] if leaf % 2 else [1], every), n_targets=2)
    for function in ("SUM", "AVERAGE", "MIN", "MAX"):
        yield ml(
            f"tree_regressor_{function.lower()}", "TreeEnsembleRegressor", [x], 3, **two, aggregate_function=function
        )
        yield ml(
            f"tree_regressor_{function.lower()}_base",
            "TreeEnsembleRegressor",
            [x],
            3,
            **two,
            aggregate_function=function,
            base_values=[0.5, -1.0],
        )
        yield ml(
            f"tree_regressor_{function.lower()}_one",
            "TreeEnsembleRegressor",
            [x],
            3,
            **one,
            aggregate_function=function,
            base_values=[0.25],
        )
    for transform in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        yield ml(
            f"tree_regressor_{transform.lower()}", "TreeEnsembleRegressor", [x], 3, **two, post_transform=transform
        )
    yield ml("tree_regressor_float64", "TreeEnsembleRegressor", [(x * 2).astype(F64)], 3, **two)
    y = x.copy()
    y[::2, 1], y[1::2, 2] = np.nan, np.nan
    tracks = [int(v) for v in random.integers(0, 2, len(two["nodes_modes"]))]
    yield ml("tree_regressor_missing", "TreeEnsembleRegressor", [y], 3, **two, nodes_missing_value_tracks_true=tracks)
    yield ml("tree_regressor_missing_default", "TreeEnsembleRegressor", [y], 3, **two)
    many = regressor(forest(random, 30, 4, 4, lambda _: [0]), n_targets=1)
    yield ml("tree_regressor_many", "TreeEnsembleRegressor", [x], 1, **many)

    three = classifier(forest(random, 4, 2, 4, lambda leaf: [leaf % 3, (leaf + 1) % 3]))
    for transform in TRANSFORMS[:4]:
        yield ml(
            f"tree_classifier_{transform.lower()}",
            "TreeEnsembleClassifier",
            [x],
            3,
            outputs=2,
            **three,
            classlabels_int64s=[4, 5, 6],
            post_transform=transform,
        )
    yield ml(
        "tree_classifier_text",
        "TreeEnsembleClassifier",
        [x],
        1,
        outputs=2,
        **three,
        classlabels_strings=["a", "b", "c"],
    )
    yield ml(
        "tree_classifier_base",
        "TreeEnsembleClassifier",
        [x],
        3,
        outputs=2,
        **three,
        classlabels_int64s=[4, 5, 6],
        base_values=[0.5, -0.5, 1.0],
    )
    for name, sign in (("mixed", True), ("positive", False)):
        binary = classifier(forest(random, 3, 2, 4, lambda _: [0], sign=sign))
        for transform in TRANSFORMS[:4]:
            yield ml(
                f"tree_classifier_binary_{name}_{transform.lower()}",
                "TreeEnsembleClassifier",
                [x],
                3,
                outputs=2,
                **binary,
                classlabels_int64s=[3, 9],
                post_transform=transform,
            )
        yield ml(
            f"tree_classifier_binary_{name}_base",
            "TreeEnsembleClassifier",
            [x],
            3,
            outputs=2,
            **binary,
            classlabels_strings=["no", "yes"],
            base_values=[0.2],
        )
        second = classifier(forest(random, 3, 2, 4, lambda _: [1], sign=sign))
        yield ml(
            f"tree_classifier_second_{name}",
            "TreeEnsembleClassifier",
            [x],
            3,
            outputs=2,
            **second,
            classlabels_int64s=[3, 9],
        )
    for dtype in (F64, I32, I64):
        yield ml(
            f"tree_classifier_{np.dtype(dtype).name}",
            "TreeEnsembleClassifier",
            [(x * 2).astype(dtype)],
            3,
            outputs=2,
            **three,
            classlabels_int64s=[4, 5, 6],
        )


def linked_cases():
    """The newest form, in which nodes and leaves are lists of their own."""

    def tensor(kind, values):
        return helper.make_tensor("t", kind, [len(values)], values)

    x = np.array([[1.2, 3.4, -0.12], [1.0, 9.0, 2.5], [2.0, 4.0, np.nan], [-1.0, 8.0, 7.0]])
    for kind, dtype in ((TensorProto.FLOAT, F32), (TensorProto.DOUBLE, F64)):
        attributes = {
            "n_targets": 2,
            "nodes_featureids": [0, 0, 1, 2],
            "nodes_modes": tensor(TensorProto.UINT8, [0, 1, 3, 6]),
            "nodes_splits": tensor(kind, [1.0, 0.0, 5.0, 0.0]),
            "nodes_truenodeids": [1, 0, 2, 3],
            "nodes_trueleafs": [0, 1, 1, 1],
            "nodes_falsenodeids": [2, 1, 3, 4],
            "nodes_falseleafs": [0, 1, 0, 1],
            "leaf_targetids": [0, 1, 0, 1, 0],
            "leaf_weights": tensor(kind, [1.5, -2.0, 3.0, 0.25, -1.0]),
            "tree_roots": [0],
            "membership_values": tensor(kind, [7.0, 3.0, float("nan")]),
            "nodes_missing_value_tracks_true": [0, 0, 0, 1],
        }
        for number, function in enumerate(("average", "sum", "min", "max")):
            name = f"tree_ensemble_{np.dtype(dtype).name}_{function}"
            yield ml(name, "TreeEnsemble", [x.astype(dtype)], 5, **attributes, aggregate_function=number)
