"""Evaluates packages of Core ML where there is no Mac: coremltools infers the types and values of every operation once inputs are constants.

    python tests/coreml/oracle.py MODEL.mlpackage INPUTS.npz OUTPUTS.npz

Operations that coremltools does not evaluate itself are in KERNELS, most of them by way of ONNX Runtime. Types that coremltools infers are held against
those that the program declares.
"""

import logging
import sys

logging.disable(logging.CRITICAL)

import coremltools as ct  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from coremltools import proto  # noqa: E402
from coremltools.converters.mil.frontend.milproto.load import load  # noqa: E402
from coremltools.converters.mil.mil import types  # noqa: E402
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry  # noqa: E402

onnxruntime.set_default_logger_severity(4)


def by_onnx(op, inputs, opset=21, **attributes):
    """What ONNX Runtime computes in float32 for one node."""
    dtype = inputs[0].dtype
    feed, names = {}, []
    for index, array in enumerate(inputs):
        names.append("" if array is None else f"i{index}")
        if array is not None:
            feed[f"i{index}"] = array.astype(np.float32) if array.dtype == np.float16 else array
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    ports = [onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feed.items()]
    kind = ports[0].type.tensor_type.elem_type
    graph = onnx.helper.make_graph([node], "one", ports, [onnx.helper.make_tensor_value_info("y", kind, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0].astype(dtype)


def value(var):
    return None if var is None else np.asarray(var.val)


def ints(var):
    return None if var is None else [int(v) for v in np.ravel(var.val)]


def padding(self):
    """Attributes of a window."""
    given = {"strides": ints(self.strides)}
    if self.pad_type.val == "custom":
        pads = ints(self.pad)
        given["pads"] = pads[0::2] + pads[1::2]
    else:
        given["auto_pad"] = {"valid": "VALID", "same": "SAME_UPPER", "same_lower": "SAME_LOWER"}[self.pad_type.val]
    return given


def conv(self):
    inputs = [value(self.x), value(self.weight)] + ([value(self.bias)] if self.bias is not None else [])
    return by_onnx("Conv", inputs, dilations=ints(self.dilations), group=int(self.groups.val), **padding(self))


def conv_transpose(self):
    inputs = [value(self.x), value(self.weight)] + ([value(self.bias)] if self.bias is not None else [])
    return by_onnx("ConvTranspose", inputs, dilations=ints(self.dilations), group=int(self.groups.val), **padding(self))


def pool(op):
    def kernel(self):
        given = {"kernel_shape": ints(self.kernel_sizes), **padding(self)}
        if op == "AveragePool":
            given["count_include_pad"] = int(not self.exclude_padding_from_average.val)
        return by_onnx(op, [value(self.x)], **given)

    return kernel


def along(vector, rank):
    return np.reshape(vector, (1, -1) + (1,) * (rank - 2))


def batch_norm(self):
    x = value(self.x).astype(np.float32)
    mean, variance, gamma, beta = (along(value(v).astype(np.float32), x.ndim) for v in (self.mean, self.variance, self.gamma, self.beta))
    return ((x - mean) / np.sqrt(variance + np.float32(self.epsilon.val)) * gamma + beta).astype(value(self.x).dtype)


def instance_norm(self):
    x = value(self.x).astype(np.float32)
    axes = tuple(range(2, x.ndim))
    gamma, beta = (along(value(v).astype(np.float32), x.ndim) for v in (self.gamma, self.beta))
    apart = x - x.mean(axes, keepdims=True)
    root = np.sqrt((apart**2).mean(axes, keepdims=True) + np.float32(self.epsilon.val))
    return (apart / root * gamma + beta).astype(value(self.x).dtype)


def layer_norm(self):
    x = value(self.x).astype(np.float32)
    axes = tuple(ints(self.axes))
    apart = x - x.mean(axes, keepdims=True)
    y = apart / np.sqrt((apart**2).mean(axes, keepdims=True) + np.float32(self.epsilon.val))
    if self.gamma is not None:
        y = y * value(self.gamma).astype(np.float32)
    if self.beta is not None:
        y = y + value(self.beta).astype(np.float32)
    return y.astype(value(self.x).dtype)


def silu(self):
    x = value(self.x).astype(np.float32)
    return (x / (1 + np.exp(-x))).astype(value(self.x).dtype)


def gather_nd(self):
    return by_onnx("GatherND", [value(self.x), value(self.indices).astype(np.int64)], batch_dims=int(self.batch_dims.val) if hasattr(self, "batch_dims") else 0)


def scatter_nd(self):
    mode = {"update": "none"}.get(self.mode.val, self.mode.val)
    return by_onnx("ScatterND", [value(self.data), value(self.indices).astype(np.int64), value(self.updates)], reduction=mode)


def scatter_elements(self):
    mode = {"update": "none"}.get(self.mode.val, self.mode.val)
    return by_onnx("ScatterElements", [value(self.data), value(self.indices), value(self.updates)], axis=int(self.axis.val), reduction=mode)


def resize_bilinear(self):
    x = value(self.x)
    sizes = np.array([int(self.target_size_height.val), int(self.target_size_width.val)], np.int64)
    places = {"UNALIGN_CORNERS": "half_pixel", "STRICT_ALIGN_CORNERS": "align_corners", "DEFAULT": "asymmetric"}[self.sampling_mode.val]
    return resized(x, None, sizes, mode="linear", coordinate_transformation_mode=places)


def resized(x, scales, sizes, **attributes):
    scales = None if scales is None else np.array([1] * (x.ndim - 2) + list(scales), np.float32)
    sizes = None if sizes is None else np.array(list(x.shape[:-2]) + list(sizes), np.int64)
    return by_onnx("Resize", [x, None, scales] + ([sizes] if sizes is not None else []), **attributes)


def upsample_nearest(self):
    scales = [float(self.scale_factor_height.val), float(self.scale_factor_width.val)]
    return resized(value(self.x), scales, None, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def upsample_bilinear(self):
    assert not self.align_corners.val and self.half_pixel_centers.val
    scales = [float(self.scale_factor_height.val), float(self.scale_factor_width.val)]
    return resized(value(self.x), scales, None, mode="linear", coordinate_transformation_mode="half_pixel")


def depth_to_space(op, **attributes):
    def kernel(self):
        size = self.upscale_factor if op == "CRD" else self.block_size
        name = "SpaceToDepth" if op == "SpaceToDepth" else "DepthToSpace"
        return by_onnx(name, [value(self.x)], blocksize=int(size.val), **attributes)

    return kernel


def local_response_norm(self):
    given = {"alpha": float(self.alpha.val), "beta": float(self.beta.val), "bias": float(self.k.val)}
    return by_onnx("LRN", [value(self.x)], size=int(self.size.val), **given)


def reduce_log_sum_exp(self):
    x = value(self.x)
    axes = tuple(ints(self.axes)) if self.axes is not None else None
    most = x.max(axes, keepdims=True)
    sums = np.log(np.exp(x - most).sum(axes, keepdims=True)) + most
    return (sums if self.keep_dims.val else np.squeeze(sums, axes)).astype(x.dtype)


def dequantized(data, scale, offset, axis):
    shape = [-1 if axis == index else 1 for index in range(data.ndim)]
    spread = lambda it: np.reshape(it, shape) if np.ndim(it) else it  # noqa: E731
    zero = 0 if offset is None else spread(offset.astype(np.float32))
    return ((data.astype(np.float32) - zero) * spread(scale.astype(np.float32))).astype(scale.dtype)


def dequantize(self):
    axis = 0 if self.axis is None else int(self.axis.val)
    return dequantized(value(self.input), value(self.scale), value(self.zero_point), axis)


#: What evaluates an operation that coremltools does not, or not with enough precision.
KERNELS = {
    "avg_pool": pool("AveragePool"),
    "batch_norm": batch_norm,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "depth_to_space": depth_to_space("DCR", mode="DCR"),
    "dequantize": dequantize,
    "gather_nd": gather_nd,
    "instance_norm": instance_norm,
    "layer_norm": layer_norm,
    "local_response_norm": local_response_norm,
    "max_pool": pool("MaxPool"),
    "pixel_shuffle": depth_to_space("CRD", mode="CRD"),
    "reduce_log_sum_exp": reduce_log_sum_exp,
    "resize_bilinear": resize_bilinear,
    "scatter_along_axis": scatter_elements,
    "scatter_nd": scatter_nd,
    "silu": silu,
    "space_to_depth": depth_to_space("SpaceToDepth"),
    "upsample_bilinear": upsample_bilinear,
    "upsample_nearest_neighbor": upsample_nearest,
}


class Unknown(Exception):
    """The oracle cannot evaluate a package."""


def install():
    """Teaches coremltools what it does not evaluate."""
    def guarded(kernel):
        def evaluate(self):
            needed = [v for v in self.inputs.values() if v is not None and not isinstance(v, (list, tuple))]
            return None if any(v.val is None for v in needed) else kernel(self)

        return evaluate

    for name, kernel in KERNELS.items():
        for definition in set(SSAOpRegistry.core_ops[name].values()):
            definition.value_inference = guarded(kernel)
    # What is a constant of quantized numbers is computed only when it is asked for.
    for name in ("constexpr_affine_dequantize", "constexpr_blockwise_shift_scale"):
        for definition in set(SSAOpRegistry.core_ops[name].values()):
            definition.value_inference = definition.materialized_val_inference


install()


def constant(name, declared, array):
    """A `const` operation that stands for an input."""
    operation = proto.MIL_pb2.Operation(type="const")
    stored = operation.attributes["val"]
    stored.type.CopyFrom(declared)
    tensor = stored.type.tensorType
    tensor.rank = array.ndim
    del tensor.dimensions[:]
    for size in array.shape:
        tensor.dimensions.add().constant.size = size
    elements = stored.immediateValue.tensor
    if array.dtype == np.float32:
        elements.floats.values.extend(array.ravel().tolist())
    elif array.dtype == np.int32:
        elements.ints.values.extend(array.ravel().tolist())
    elif array.dtype == np.float16:
        elements.bytes.values = array.tobytes()
    else:
        raise Unknown(f"an input of {array.dtype}")
    label = operation.attributes["name"]
    label.type.tensorType.dataType = proto.MIL_pb2.STRING
    label.immediateValue.tensor.strings.values.append(name)
    output = operation.outputs.add(name=name)
    output.type.CopyFrom(stored.type)
    return operation


def declared_types(block):
    """The type that the program declares for each value: its number in the format, and its sizes, -1 for those that are not known."""
    found = {}
    for operation in block.operations:
        for output in operation.outputs:
            tensor = output.type.tensorType
            sizes = [dim.constant.size if dim.WhichOneof("dimension") == "constant" else -1 for dim in tensor.dimensions]
            found[output.name] = (tensor.dataType, sizes)
    return found


def mismatches(program, declared):
    """Values whose type coremltools infers otherwise."""
    codes = {v: k for k, v in types.PROTO_TO_BUILTIN_TYPE.items()}
    for operation in program.functions["main"].operations:
        for var in operation.outputs:
            if var.name not in declared:
                continue
            code, sizes = declared[var.name]
            shape = list(var.shape)
            same = len(shape) == len(sizes) and all(a == b or b == -1 for a, b in zip(shape, sizes))
            if codes[var.dtype] != code or not same:
                yield f"{operation.op_type} {var.name}: {types.builtin_to_string(var.dtype)} {shape} is declared as {code} {sizes}"


def run(path, feed):
    """The outputs of a package by name. Raises Unknown for what cannot be evaluated, and ValueError where types differ."""
    model = ct.models.MLModel(str(path), skip_model_load=True)
    spec = model.get_spec()
    function = spec.mlProgram.functions["main"]
    block = function.block_specializations[function.opset]
    declared = declared_types(block)
    operations = list(block.operations)
    del block.operations[:]
    for port in function.inputs:
        block.operations.add().CopyFrom(constant(port.name, port.type, feed[port.name]))
    for operation in operations:
        block.operations.add().CopyFrom(operation)
    outputs = list(block.outputs)
    del function.inputs[:]
    del spec.description.input[:]
    program = load(spec, specification_version=spec.specificationVersion, file_weights_dir=model.weights_dir)
    main = program.functions["main"]
    differing = list(mismatches(program, declared))
    if differing:
        raise ValueError(f"{len(differing)} types differ, the first is {differing[0]}")
    missing = sorted({op.op_type for op in main.operations if any(var.val is None for var in op.outputs)})
    if missing:
        raise Unknown(f"not evaluated: {', '.join(missing)}")
    return dict(zip(outputs, (np.asarray(var.val) for var in main.outputs)))


def interface(path):
    """Inputs and outputs of a package: name in the program, name in the model, element type there, whether it is a scalar."""
    import json

    spec = ct.models.MLModel(str(path), skip_model_load=True).get_spec()
    ports = json.loads(spec.description.metadata.userDefined["onnxforge.ports"])
    inputs = len(spec.description.input)
    return ports[:inputs], ports[inputs:]


def arrays(path, feed):
    """Inputs of the model as those of the package."""
    given = {}
    for port in interface(path)[0]:
        array = np.asarray(feed[port["model"]])
        kind = {"float": np.float32, "float16": np.float16}.get(port["dtype"], np.int32)
        given[port["name"]] = np.reshape(array.astype(kind), [1] if port.get("scalar") else array.shape)
    return given


def differences(model, path, feed):
    """How far a package is from the model in ONNX Runtime, as a share of the scale, for each output."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    expected = dict(zip(names, session.run(None, feed)))
    found = run(path, arrays(path, feed))
    apart = {}
    for port in interface(path)[1]:
        a, b = expected[port["model"]], found[port["name"]]
        if port.get("scalar"):
            b = np.reshape(b, a.shape)
        if a.shape != b.shape:
            raise ValueError(f"{port['model']}: {a.shape} became {b.shape}")
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            apart[port["model"]] = float("inf")
            continue
        scale = np.abs(a[finite]).max() if finite.any() else 0
        apart[port["model"]] = float(np.abs(a[finite] - b[finite]).max() / max(scale, 1e-30)) if finite.any() else 0.0
    return apart


def made_up(model, sizes, seed=0):
    """Inputs of a model, with these sizes of named dimensions."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(seed)
    inputs = {}
    for port in session.get_inputs():
        shape = [size if isinstance(size, int) else sizes.get(size, 2) for size in port.shape]
        if "bool" in port.type:
            inputs[port.name] = rng.integers(0, 2, shape).astype(bool)
        elif "int" in port.type:
            kind = np.int64 if "64" in port.type else np.int32
            high = 2 if "mask" in port.name or "type" in port.name else 50
            inputs[port.name] = rng.integers(0, high, shape).astype(kind)
        else:
            inputs[port.name] = rng.standard_normal(shape).astype(np.float16 if "16" in port.type else np.float32)
    return inputs


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    results = run(sys.argv[1], dict(np.load(sys.argv[2])))
    np.savez(sys.argv[3], **results)
    print({name: array.shape for name, array in results.items()})
