"""Loads and runs files of TensorFlow Lite for onnxforge: a question as JSON on standard input, the answer on standard output."""

import json
import os
import sys
import time

sys.path = [place for place in sys.path if place]


def interpreter(path, threads):
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(path, num_threads=threads)


def run(question):
    import numpy as np

    loaded = interpreter(question["file"], question["threads"])
    if len(loaded.get_signature_list()) != 1:
        raise ValueError("it has not exactly one signature")
    runner = loaded.get_signature_runner()
    given = np.load(question["inputs"])
    inputs = {name: given[str(index)] for index, name in enumerate(question["names"])}
    outputs = runner(**inputs)
    np.savez(question["outputs"], **{str(index): array for index, array in enumerate(outputs.values())})
    return {"names": list(outputs)}


def memory():
    fields = {}
    try:
        with open("/proc/self/status") as status:
            for line in status:
                name, _, rest = line.partition(":")
                fields[name] = rest.split()
        return {"peak": int(fields["VmHWM"][0]) * 1024, "held": int(fields["RssAnon"][0]) * 1024}
    except (OSError, KeyError):
        return None


def measure(question):
    import numpy as np

    given = np.load(question["inputs"])
    inputs = {name: given[str(index)] for index, name in enumerate(question["names"])}
    files, turn = question["files"], question["turn"]
    sessions, loads = [None] * len(files), [0.0] * len(files)
    for which in ((place + turn) % len(files) for place in range(len(files))):
        start = time.perf_counter()
        loaded = interpreter(files[which], question["threads"])
        ports = {detail["index"]: detail for detail in loaded.get_input_details()}
        by_name = next(iter(loaded.get_signature_list().values()))["inputs"]
        places = loaded._get_full_signature_list()
        places = next(iter(places.values()))["inputs"]
        assert sorted(by_name) == sorted(inputs), f"{files[which]} has other inputs"
        resized = False
        for name, array in inputs.items():
            if list(ports[places[name]]["shape"]) != list(array.shape):
                loaded.resize_tensor_input(places[name], array.shape, strict=False)
                resized = True
        loaded.allocate_tensors()
        for name, array in inputs.items():
            loaded.set_tensor(places[name], array)
        loads[which] = (time.perf_counter() - start) * 1e3
        sessions[which] = loaded
    shortest = float("inf")
    for loaded in sessions:
        for _ in range(max(question["warmups"], 1)):
            start = time.perf_counter()
            loaded.invoke()
            shortest = min(shortest, time.perf_counter() - start)
    runs, start, round_ = [[] for _ in files], time.perf_counter(), 0
    while True:
        spent = time.perf_counter() - start
        if question["rounds"] is not None:
            enough = round_ >= question["rounds"]
        else:
            enough = round_ >= 3 and (round_ >= 1000 or spent >= question["seconds"])
        if enough:
            break
        for place in range(len(files)):
            which = (turn + round_ + place) % len(files)
            if shortest < 0.02:
                sessions[which].invoke()
            begun = time.perf_counter()
            sessions[which].invoke()
            runs[which].append((time.perf_counter() - begun) * 1e3)
        round_ += 1
    times = [{"load": load, "runs": measured} for load, measured in zip(loads, runs)]
    return {"sessions": times, "memory": memory()}


def main():
    question = json.load(sys.stdin)
    # What the runtime itself prints does not belong in the answer.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer = measure(question) if "files" in question else run(question)
    except Exception as error:  # noqa: BLE001
        answer = {"error": str(error) or type(error).__name__}
    json.dump(answer, out)


main()
