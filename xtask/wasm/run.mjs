// Optimizes a model with the WebAssembly module: node run.mjs MODULE INPUT OUTPUT VERIFY
import { readFileSync, writeFileSync } from "node:fs";

const [module, input, output, verify] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(module), {});
const { memory, onnxforge_reserve, onnxforge_start, onnxforge_length, onnxforge_optimize } = instance.exports;

const model = readFileSync(input);
const place = onnxforge_reserve(model.length) >>> 0;
new Uint8Array(memory.buffer, place, model.length).set(model);
const failed = onnxforge_optimize(Number(verify));
// The memory may have grown, so that the old view of it is no longer valid.
const result = new Uint8Array(memory.buffer, onnxforge_start() >>> 0, onnxforge_length() >>> 0);
if (failed) {
    console.error(new TextDecoder().decode(result));
    process.exit(1);
}
writeFileSync(output, result);
