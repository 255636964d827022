"""Cases for the quantized operators of the standard domain."""

import numpy as np

from one_node import Case, normal, rng

F16, F32, I8, U8, I32 = np.float16, np.float32, np.int8, np.uint8, np.int32


def standard(name, op, inputs, attributes=None, outputs=1, opset=21, **rest):
    return Case(name, op, inputs, attributes or {}, outputs, domain="", standard=opset, **rest)


def scalar(value, dtype=F32):
    return np.array(value, dtype)


def linear_cases():
    random = rng("linear quantization")
    x = normal(random, 4, 6) * 30
    for dtype in (U8, I8, np.uint16, np.int16):
        name = np.dtype(dtype).name
        low, width = np.iinfo(dtype).min, np.iinfo(dtype).max - np.iinfo(dtype).min
        zeros = (low + (random.random(6) * width)).astype(dtype)
        scales = (random.random(6) + 0.1).astype(F32)
        zero = np.array(zeros[0])
        codes = (low + random.random((4, 6)) * width).astype(dtype)
        for op, data in (("QuantizeLinear", x), ("DequantizeLinear", codes)):
            case = f"{op.lower()}_{name}"
            yield standard(case, op, [data, scalar(0.37), zero])
            yield standard(f"{case}_axis", op, [data, scales, zeros], {"axis": -1})
            yield standard(f"{case}_rows", op, [data, scales[:4], zeros[:4]], {"axis": 0})
            blocked = [data, scales.reshape(2, 3).repeat(2, 0), zeros.reshape(2, 3).repeat(2, 0)]
            yield standard(f"{case}_blocks", op, blocked, {"axis": 1, "block_size": 2})
        if dtype in (U8, I8):
            yield standard(f"quantizelinear_10_{name}", "QuantizeLinear", [x, scalar(0.37), zero], opset=10)
            half = [x.astype(F16), scalar(0.4, F16), zero]
            yield standard(f"quantizelinear_half_{name}", "QuantizeLinear", half, opset=19)
            half = [codes, scalar(0.4, F16), zero]
            yield standard(f"dequantizelinear_half_{name}", "DequantizeLinear", half, opset=19)
    special = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.5, 3.5, -0.5], F32)
    yield standard("quantizelinear_special", "QuantizeLinear", [special, scalar(1.0), scalar(3, I8)])
    yield standard("quantizelinear_no_zero", "QuantizeLinear", [x, scalar(0.37)])
    uneven = [x[:, :5].copy(), normal(random, 4, 3) ** 2 + F32(0.1)]
    yield standard("quantizelinear_uneven_blocks", "QuantizeLinear", uneven, {"axis": 1, "block_size": 2})
    yield standard("dequantizelinear_int32", "DequantizeLinear", [np.arange(-9, 9, dtype=I32) * 99999, scalar(1.5)])
    for name, data in (("mixed", x), ("positive", np.abs(x)), ("negative", -np.abs(x)), ("zero", np.zeros(3, F32))):
        yield standard(f"dynamicquantizelinear_{name}", "DynamicQuantizeLinear", [data], outputs=3)


def product_cases():
    random = rng("quantized products")
    for a_type, b_type in ((U8, U8), (U8, I8), (I8, I8)):
        name = f"{np.dtype(a_type).name}_{np.dtype(b_type).name}"

        def byte(dtype, *shape):
            return random.integers(np.iinfo(dtype).min // 2, np.iinfo(dtype).max // 2, shape).astype(dtype)

        a, b = byte(a_type, 3, 7), byte(b_type, 7, 5)
        columns = byte(b_type, 5)
        op = "MatMulInteger"
        yield standard(f"matmulinteger_{name}", op, [a, b])
        yield standard(f"matmulinteger_zeros_{name}", op, [a, b, byte(a_type), byte(b_type)])
        yield standard(f"matmulinteger_columns_{name}", op, [a, b, byte(a_type), columns])
        yield standard(f"matmulinteger_batch_{name}", op, [byte(a_type, 2, 1, 3, 7), byte(b_type, 4, 7, 5)])
        yield standard(f"matmulinteger_vector_{name}", op, [a, b[:, 0].copy()])
        scales = (random.random(5) / 50).astype(F32)
        result = [scalar(0.8), byte(a_type)]
        first = [scalar(0.05), byte(a_type)]
        op = "QLinearMatMul"
        yield standard(f"qlinearmatmul_{name}", op, [a, *first, b, scalar(0.03), byte(b_type), *result])
        yield standard(f"qlinearmatmul_columns_{name}", op, [a, *first, b, scales, columns, *result])
        stack = byte(a_type, 2, 3, 7)
        yield standard(f"qlinearmatmul_batch_{name}", op, [stack, *first, b, scalar(0.03), byte(b_type), *result])
        x, w = byte(a_type, 2, 4, 6, 5), byte(b_type, 6, 2, 3, 3)
        plain = [x, *first, w, scalar(0.03), byte(b_type), *result]
        bias = random.integers(-900, 900, 6).astype(I32)
        channels = [x, *first, w, (random.random(6) / 20).astype(F32), np.full(6, byte(b_type), b_type), *result]
        op = "QLinearConv"
        yield standard(f"qlinearconv_{name}", op, plain, {"group": 2})
        yield standard(f"qlinearconv_bias_{name}", op, [*plain, bias], {"group": 2, "pads": [1, 1, 1, 1]})
        yield standard(f"qlinearconv_channels_{name}", op, [*channels, bias], {"group": 2, "strides": [2, 1]})
        same = {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]}
        yield standard(f"qlinearconv_same_{name}", op, plain, same)
        dilated = {"group": 2, "dilations": [2, 1], "pads": [2, 1, 1, 0]}
        yield standard(f"qlinearconv_dilated_{name}", op, plain, dilated)


def quant_cases():
    yield from linear_cases()
    yield from product_cases()
