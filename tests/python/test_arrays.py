"""Arrays of other libraries as inputs, and types that numpy lacks in and out."""

import ml_dtypes
import numpy as np
import onnx
import onnxforge
import pytest
from onnx import TensorProto, helper

SMALL = {
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
}


def identity(kind):
    x, y = (helper.make_tensor_value_info(name, kind, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"], name="/layer/Identity")], "small", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", SMALL, ids=TensorProto.DataType.Name)
def test_small_types_go_in_and_out(kind):
    values = np.array([1, 2, 3], np.float32).astype(SMALL[kind])
    model = identity(kind)
    (found,) = onnxforge.run(model, {"x": values}).values()
    assert found.dtype == SMALL[kind]
    np.testing.assert_array_equal(found.astype(np.float32), [1, 2, 3])
    assert onnxforge.verify(model, model, inputs={"x": values}, samples=1, engine="native").verdict == "identical"
    assert onnxforge.extract(model, "layer", inputs={"x": values}, verify=True).ok


class Exchanged:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_arrays_of_other_libraries_are_taken():
    array = np.arange(4, dtype=np.float32)
    found = onnxforge.run(identity(TensorProto.FLOAT), {"x": Exchanged(array)})["y"]
    np.testing.assert_array_equal(found, array)
    # And given: an array of numpy speaks it.
    np.testing.assert_array_equal(np.from_dlpack(found), array)


def test_memory_of_other_libraries_is_not_copied():
    from onnxforge._models import as_array

    array = np.arange(4, dtype=np.float32)
    assert np.shares_memory(as_array(Exchanged(array)), array)


def test_a_type_that_dlpack_lacks_is_asked_for_otherwise():
    class Refusing(Exchanged):
        def __dlpack__(self, **options):
            raise BufferError("no such type")

        def __array__(self, dtype=None, copy=None):
            return self._array

    model = onnx.ModelProto()
    model.CopyFrom(identity(TensorProto.FLOAT))
    assert onnxforge.run(model, {"x": Refusing(np.ones(2, np.float32))})["y"].tolist() == [1, 1]
