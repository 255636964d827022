"""Cases for the operators of com.microsoft."""

import numpy as np

from attention_kinds import attention_cases
from one_node import Case, normal, rng

F16, F32, I8, U8, I32 = np.float16, np.float32, np.int8, np.uint8, np.int32


def scalar(value, dtype=F32):
    return np.array(value, dtype)


def activation_cases():
    random = rng("activations")
    x, bias = normal(random, 2, 3, 8) * 2, normal(random, 8)
    yield Case("gelu", "Gelu", [x])
    yield Case("quick_gelu", "QuickGelu", [x])
    yield Case("quick_gelu_alpha", "QuickGelu", [x], {"alpha": 1.0})
    yield Case("fast_gelu", "FastGelu", [x])
    yield Case("fast_gelu_bias", "FastGelu", [x, bias])
    yield Case("bias_gelu", "BiasGelu", [x, bias])


def product_cases():
    random = rng("products")
    a, b = normal(random, 2, 3, 4), normal(random, 2, 4, 5)
    yield Case("fused_matmul", "FusedMatMul", [a, b], {"alpha": 0.5})
    yield Case("fused_matmul_double", "FusedMatMul", [a.astype(np.float64), b.astype(np.float64)], {"alpha": 0.5})

    def swap(x):
        return np.ascontiguousarray(np.swapaxes(x, -1, -2))

    yield Case("fused_matmul_a", "FusedMatMul", [swap(a), b], {"transA": 1})
    yield Case("fused_matmul_b", "FusedMatMul", [a, swap(b)], {"transB": 1, "alpha": 2.0})
    yield Case("fused_matmul_both", "FusedMatMul", [swap(a), swap(b)], {"transA": 1, "transB": 1})
    yield Case("fused_matmul_broadcast", "FusedMatMul", [a, b[0]])
    yield Case("fused_matmul_vector", "FusedMatMul", [a, b[0, :, 0]])

    def move(x):
        return np.ascontiguousarray(np.moveaxis(x, -2, 0))

    c, d = normal(random, 2, 3, 4, 5), normal(random, 2, 3, 5, 6)
    yield Case("fused_matmul_batch_a", "FusedMatMul", [move(c), d], {"transBatchA": 1})
    yield Case("fused_matmul_batch_b", "FusedMatMul", [c, move(d)], {"transBatchB": 1})
    yield Case(
        "fused_matmul_batch_swap",
        "FusedMatMul",
        [move(swap(c)), move(swap(d))],
        {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1},
    )
    yield Case("transpose_matmul", "TransposeMatMul", [swap(a), b], {"transA": 1, "alpha": 3.0})
    e, f, g = normal(random, 3, 4), normal(random, 4, 5), normal(random, 5)
    for name, extra in (
        ("Relu", {}),
        ("Tanh", {}),
        ("Sigmoid", {}),
        ("Softsign", {}),
        ("Softplus", {}),
        ("LeakyRelu", {"activation_alpha": 0.25}),
        ("Elu", {"activation_alpha": 0.5}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("ThresholdedRelu", {"activation_alpha": 0.5}),
    ):
        yield Case(f"fused_gemm_{name.lower()}", "FusedGemm", [e, f, g], {"activation": name, "beta": 0.5, **extra})
    yield Case(
        "fused_gemm_transposed", "FusedGemm", [swap(e), swap(f), g], {"activation": "Relu", "transA": 1, "transB": 1}
    )


def convolution_cases():
    random = rng("convolutions")
    x, w, b = normal(random, 2, 4, 6, 5), normal(random, 6, 2, 3, 3), normal(random, 6)
    z = normal(random, 2, 6, 6, 5)
    same = {"pads": [1, 1, 1, 1], "group": 2}
    for name, params in (
        ("Relu", []),
        ("Tanh", []),
        ("Sigmoid", []),
        ("HardSwish", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 1.0]),
        ("HardSigmoid", [0.25, 0.4]),
    ):
        attributes = {"activation": name, **same, **({"activation_params": params} if params else {})}
        yield Case(f"fused_conv_{name.lower()}", "FusedConv", [x, w, b], attributes)
    yield Case("fused_conv_residual", "FusedConv", [x, w, b, z], {"activation": "Relu", **same})
    yield Case("fused_conv_strided", "FusedConv", [x, w], {"activation": "Relu", "strides": [2, 1], "group": 2})
    image = random.integers(-128, 128, (2, 6, 5, 3)).astype(I8)
    pooling = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    yield Case("nhwc_max_pool", "NhwcMaxPool", [image], pooling)
    yield Case("nhwc_max_pool_uint8", "NhwcMaxPool", [image.view(U8)], {"kernel_shape": [2, 2]})


def norm_cases():
    random = rng("norms")
    x, skip, gamma, beta, bias = (normal(random, *shape) for shape in ((2, 3, 8), (2, 3, 8), (8,), (8,), (8,)))
    for dtype in (F32, F16):
        name = np.dtype(dtype).name

        def cast(*arrays, dtype=dtype):
            return [array.astype(dtype) for array in arrays]

        loose = {"rtol": 5e-3, "atol": 5e-3} if dtype == F16 else {}
        full = {"epsilon": 1e-5}
        yield Case(
            f"simplified_layer_norm_{name}",
            "SimplifiedLayerNormalization",
            cast(x, gamma),
            {"axis": -1},
            domain="",
            **loose,
        )
        yield Case(f"skip_layer_norm_{name}", "SkipLayerNormalization", cast(x, skip, gamma, beta), full, **loose)
        yield Case(
            f"skip_layer_norm_bias_{name}",
            "SkipLayerNormalization",
            cast(x, skip, gamma, beta, bias),
            full,
            [True, False, False, True],
            **loose,
        )
        yield Case(f"skip_simplified_{name}", "SkipSimplifiedLayerNormalization", cast(x, skip, gamma), full, **loose)
        yield Case(
            f"skip_simplified_bias_{name}",
            "SkipSimplifiedLayerNormalization",
            cast(x, skip, gamma, bias),
            full,
            [True, False, False, True],
            **loose,
        )
    # Before opset 17 the standard had none, and onnxruntime had its own.
    yield Case("layer_norm_early", "LayerNormalization", [x, gamma, beta], {"epsilon": 1e-3}, domain="", standard=12)
    yield Case("layer_norm_early_plain", "LayerNormalization", [x, gamma], {"axis": -1}, domain="", standard=9)
    yield Case("skip_layer_norm_no_beta", "SkipLayerNormalization", [x, skip, gamma], {"epsilon": 1e-5})
    yield Case("skip_layer_norm_shared", "SkipLayerNormalization", [x, skip[:1], gamma, beta])
    yield Case("skip_layer_norm_flat", "SkipLayerNormalization", [x, skip[0], gamma, beta])
    yield Case("skip_layer_norm_matrix", "SkipLayerNormalization", [x[0], skip[0], gamma, beta])
    wide = normal(random, 3, 8)
    yield Case(
        "simplified_layer_norm_axis", "SimplifiedLayerNormalization", [x, wide], {"axis": 1, "epsilon": 1e-3}, domain=""
    )
    words, places, segments = normal(random, 10, 8), normal(random, 6, 8), normal(random, 2, 8)
    ids = random.integers(0, 10, (2, 3)).astype(I32)
    parts = random.integers(0, 2, (2, 3)).astype(I32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], I32)
    positions = np.array([[2, 5, 0]], I32)
    both = random.integers(0, 6, (2, 3)).astype(I32)
    op = "EmbedLayerNormalization"
    yield Case("embed_layer_norm", op, [ids, parts, words, places, segments, gamma, beta, mask], outputs=2)
    yield Case("embed_layer_norm_sum", op, [ids, parts, words, places, segments, gamma, beta, mask], outputs=3)
    yield Case("embed_layer_norm_distil", op, [ids, None, words, places, None, gamma, beta], outputs=2)
    yield Case(
        "embed_layer_norm_positions",
        op,
        [ids, parts, words, places, segments, gamma, beta, None, positions],
        {"epsilon": 1e-3},
        2,
    )
    yield Case(
        "embed_layer_norm_all_positions", op, [ids, parts, words, places, segments, gamma, beta, mask, both], outputs=2
    )


def quantized_cases():
    random = rng("quantized")
    for dtype in (U8, I8):
        name, low = np.dtype(dtype).name, np.iinfo(dtype).min

        def byte(*shape, dtype=dtype, low=low):
            return random.integers(low, low + 256, shape).astype(dtype)

        def zero(offset, dtype=dtype, low=low):
            return np.array(low + offset, dtype)

        def grid(scale, offset):
            return [scalar(scale), zero(offset)]

        a, b = byte(2, 3, 4), byte(3, 1)
        for op in ("QLinearAdd", "QLinearMul"):
            scale = 0.07 if op == "QLinearAdd" else 0.4
            yield Case(f"{op.lower()}_{name}", op, [a, *grid(0.05, 120), b, *grid(0.03, 100), *grid(scale, 130)])
        yield Case(
            f"qlinear_leaky_relu_{name}", "QLinearLeakyRelu", [a, *grid(0.05, 120), *grid(0.03, 60)], {"alpha": 0.1}
        )
        yield Case(f"qlinear_sigmoid_{name}", "QLinearSigmoid", [a, *grid(0.05, 120), *grid(1 / 256, 0)])
        x = byte(2, 3, 5, 4)
        for opset, axis in ((13, -1), (13, 1), (12, 1), (11, 2)):
            yield Case(
                f"qlinear_softmax_{opset}_{axis}_{name}".replace("-", "m"),
                "QLinearSoftmax",
                [x, *grid(0.02, 120), *grid(1 / 256, 0)],
                {"opset": opset, "axis": axis},
                atol=1.0,
            )
        pooling = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
        pooled = [x, *grid(0.05, 120), *grid(0.04, 110)]
        yield Case(f"qlinear_average_pool_{name}", "QLinearAveragePool", pooled, pooling, atol=1.0)
        yield Case(
            f"qlinear_average_pool_padded_{name}",
            "QLinearAveragePool",
            pooled,
            {**pooling, "count_include_pad": 1},
            atol=1.0,
        )
        yield Case(
            f"qlinear_average_pool_last_{name}", "QLinearAveragePool", pooled, {**pooling, "channels_last": 1}, atol=1.0
        )
        yield Case(f"qlinear_global_average_pool_{name}", "QLinearGlobalAveragePool", pooled, atol=1.0)
        yield Case(
            f"qlinear_global_average_pool_last_{name}",
            "QLinearGlobalAveragePool",
            pooled,
            {"channels_last": 1},
            atol=1.0,
        )
        parts = [byte(2, 3), *grid(0.05, 120), byte(2, 1), *grid(0.03, 100), byte(2, 2), *grid(0.04, 110)]
        yield Case(f"qlinear_concat_{name}", "QLinearConcat", [*grid(0.04, 110), *parts], {"axis": 1})
        condition = random.integers(0, 2, (2, 3, 4)).astype(bool)
        yield Case(
            f"qlinear_where_{name}",
            "QLinearWhere",
            [condition, a, *grid(0.05, 120), b, *grid(0.03, 100), *grid(0.06, 130)],
        )
        m, n = byte(3, 8), byte(8, 5) if dtype == U8 else random.integers(-64, 64, (8, 5)).astype(I8)
        c = random.integers(-1000, 1000, (5,)).astype(I32)
        swap = np.ascontiguousarray
        quantized = [scalar(0.05), zero(120)]
        columns = [(random.random(5) / 20).astype(F32), np.full(5, low + 100, dtype)]
        yield Case(f"qgemm_{name}", "QGemm", [m, *grid(0.01, 120), n, *grid(0.02, 110), c, *quantized], {"alpha": 1.5})
        yield Case(f"qgemm_columns_{name}", "QGemm", [m, *grid(0.01, 120), n, *columns, c, *quantized])
        yield Case(f"qgemm_float_{name}", "QGemm", [m, *grid(0.01, 120), n, *columns, None, None, None])
        yield Case(
            f"qgemm_transposed_{name}",
            "QGemm",
            [swap(m.T), *grid(0.01, 120), swap(n.T), *grid(0.02, 110), c, None, None],
            {"transA": 1, "transB": 1},
        )
        op = "MatMulIntegerToFloat"
        yield Case(
            f"matmul_integer_to_float_{name}",
            op,
            [m, n, scalar(0.01), scalar(0.02), zero(120), zero(100), normal(random, 5)],
        )
        yield Case(
            f"matmul_integer_to_float_columns_{name}", op, [m, n, scalar(0.01), columns[0], zero(120), columns[1]]
        )
        yield Case(f"matmul_integer_to_float_batch_{name}", op, [byte(2, 3, 8), n, scalar(0.01), scalar(0.02)])
        f = normal(random, 2, 3, 8)
        yield Case(
            f"dynamic_quantize_matmul_{name}",
            "DynamicQuantizeMatMul",
            [f, n, scalar(0.02), zero(100), normal(random, 5)],
        )
        yield Case(f"dynamic_quantize_matmul_columns_{name}", "DynamicQuantizeMatMul", [f, n, *columns])
        yield Case(f"dynamic_quantize_matmul_plain_{name}", "DynamicQuantizeMatMul", [f, n, scalar(0.02)])
        y = normal(random, 3, 4) * 20
        yield Case(f"quantize_linear_{name}", "QuantizeLinear", [y, *grid(0.3, 100)])
        yield Case(f"dequantize_linear_{name}", "DequantizeLinear", [a, *grid(0.3, 100)])
        scales, zeros = np.array([0.1, 0.2, 0.5], F32), np.array([low + 3, low + 99, low + 200], dtype)
        yield Case(f"quantize_linear_axis_{name}", "QuantizeLinear", [y, scales, zeros], {"axis": 0})
        yield Case(f"dequantize_linear_axis_{name}", "DequantizeLinear", [a, scales, zeros], {"axis": 1})
    half = normal(random, 3, 4, dtype=F16) * F16(20)
    yield Case("quantize_linear_float16", "QuantizeLinear", [half, scalar(0.25, F16), scalar(7, U8)])
    yield Case("quantize_linear_int16", "QuantizeLinear", [normal(random, 9) * 900, scalar(0.01), scalar(-7, np.int16)])
    yield Case("dequantize_linear_float16", "DequantizeLinear", [scalar([3, 9], I8), scalar(0.25, F16), scalar(7, I8)])
    yield Case("dequantize_linear_int32", "DequantizeLinear", [scalar([3, -9000000], I32), scalar(0.25)])
    deep = random.integers(-300, 300, (2, 3, 4)).astype(np.int16), random.integers(-300, 300, (4, 5)).astype(np.int16)
    yield Case("matmul_integer16", "MatMulInteger16", list(deep))


def packed(values, bits):
    """Numbers of `bits` bits packed into bytes along the last axis, lowest bits first."""
    per_byte = 8 // bits
    count = -(-values.shape[-1] // per_byte)
    padded = np.zeros((*values.shape[:-1], count * per_byte), U8)
    padded[..., : values.shape[-1]] = values
    groups = padded.reshape(*values.shape[:-1], count, per_byte)
    return np.bitwise_or.reduce(groups << (np.arange(per_byte, dtype=U8) * U8(bits)), axis=-1).astype(U8)


def nbits_cases():
    random = rng("nbits")
    for bits, depth, columns, block in (
        (4, 32, 6, 16),
        (4, 40, 3, 32),
        (8, 32, 5, 16),
        (8, 70, 4, 32),
        (4, 128, 8, 64),
    ):
        blocks = -(-depth // block)
        weights = random.integers(0, 1 << bits, (columns, blocks, block)).astype(U8)
        zeros = random.integers(0, 1 << bits, (columns, blocks)).astype(U8)
        scales = (random.random((columns, blocks)) / 10).astype(F32)
        attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
        name = f"matmul_nbits_{bits}_{depth}_{columns}_{block}"
        a, b = normal(random, 2, 3, depth), packed(weights, bits)
        yield Case(name, "MatMulNBits", [a, b, scales], attributes)
        yield Case(f"{name}_zeros", "MatMulNBits", [a, b, scales, packed(zeros, bits)], attributes)
        yield Case(
            f"{name}_bias",
            "MatMulNBits",
            [a, b, scales, packed(zeros, bits), None, normal(random, columns)],
            attributes,
        )
    yield Case("matmul_nbits_float_zeros", "MatMulNBits", [a, b, scales, zeros.astype(F32)], attributes)


def layout_cases():
    random = rng("layout")
    x = normal(random, 2, 3, 4)
    for axis in (0, 2, -1, -4):
        yield Case(f"expand_dims_{axis}".replace("-", "m"), "ExpandDims", [x, scalar(axis, I32)])
    yield Case("trilu", "Trilu", [x])
    yield Case("trilu_lower", "Trilu", [x, scalar(1, np.int64)], {"upper": 0})
    widths = np.array([1, 0, 2, 0, 1, -1])
    yield Case("pad", "Pad", [x, widths, scalar([2.5])])
    yield Case("pad_row", "Pad", [x, widths.reshape(1, 6)])
    yield Case("pad_edge", "Pad", [x, np.array([1, 0, 2, 0, 1, 0])], {"mode": "edge"})
    yield Case("gather_nd", "GatherND", [x, np.array([[0, 2], [1, 0]])])
    matrices = normal(random, 2, 4, 4) + 3 * np.eye(4, dtype=F32)
    yield Case("inverse", "Inverse", [matrices])
    yield Case("inverse_double", "Inverse", [matrices[0].astype(np.float64)])
    image, grid = normal(random, 2, 2, 4, 5), (random.random((2, 3, 3, 2)) * 2.4 - 1.2).astype(F32)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            yield Case(
                f"grid_sample_{mode}_{padding}", "GridSample", [image, grid], {"mode": mode, "padding_mode": padding}
            )
    yield Case("grid_sample_corners", "GridSample", [image, grid], {"align_corners": 1})


def contrib_cases():
    kinds = (
        activation_cases,
        product_cases,
        convolution_cases,
        norm_cases,
        attention_cases,
        quantized_cases,
        nbits_cases,
        layout_cases,
    )
    for kind in kinds:
        yield from kind()
