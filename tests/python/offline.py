"""What ONNX Runtime itself saves of a model, with all fusions that do not depend on the machine.

    python tests/python/offline.py MODEL.onnx OUT.onnx
"""

import sys


def offline(path, out):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(out)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "offline.data")
    options.log_severity_level = 3
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    offline(*sys.argv[1:])
