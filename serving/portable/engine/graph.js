// A graph of ONNX: its nodes, one after the other.

import { OPERATORS } from "./operators.js";
import { ARRAYS, count, tensor } from "./tensors.js";

export class Graph {
  // `about` is a graph as `serving.portable.engine._graphs` writes it, `numbers` the buffer of its
  // constants. `laid` has the laid-out kernels of all graphs, by offset and shape.
  constructor(about, numbers, products, laid = new Map()) {
    const { inputs, outputs, constants, kernels, nodes } = about;
    Object.assign(this, { inputs, outputs, products });
    this.constants = new Map();
    for (const [name, [dtype, dims, at]] of Object.entries(constants)) {
      this.constants.set(name, tensor(new ARRAYS[dtype](numbers, at, count(dims)), dims));
    }
    for (const [name, [dtype, dims, at, columns]] of Object.entries(kernels)) {
      const key = `${at} ${dims}`;
      if (!laid.has(key)) laid.set(key, products.place(new ARRAYS[dtype](numbers, at, dims[0] * columns), ...dims));
      this.constants.set(name, { dims, kernel: laid.get(key) });
    }
    this.nodes = nodes.map(([op, from, to, { body, ...attributes }]) => {
      const run = op === "Scan" ? scan(new Graph(body, numbers, products, laid)) : OPERATORS[op];
      return { run, from, to, attributes };
    });
  }

  // Run the graph on tensors in the order of its inputs; return its outputs. `outside` finds values of
  // the enclosing graph by name.
  run(inputs, outside = () => undefined) {
    const values = new Map(this.inputs.map((name, i) => [name, inputs[i]]));
    const find = (name) => values.get(name) ?? this.constants.get(name) ?? outside(name);
    for (const { run, from, to, attributes } of this.nodes) {
      const made = run(from.map(find), attributes, this.products, find);
      if (to.length === 1 && !Array.isArray(made)) values.set(to[0], made);
      else to.forEach((name, i) => values.set(name, made[i]));
    }
    return this.outputs.map(find);
  }

  // Run the graph on tensors by name; return its outputs by name.
  ask(inputs) {
    const outputs = this.run(this.inputs.map((name) => inputs[name]));
    return Object.fromEntries(this.outputs.map((name, i) => [name, outputs[i]]));
  }
}

// ONNX's Scan: run `body` on each slice of the first axis, from the end if a direction is 1.
const scan = (body) => (inputs, attributes, _, find) => {
  const { num_scan_inputs: count, scan_input_directions: from, scan_output_directions: to } = attributes;
  let state = inputs.slice(0, -count);
  const steps = inputs.slice(-count);
  const length = steps[0].dims[0];
  const put = to.map(() => new Array(length));
  for (let time = 0; time < length; time++) {
    const current = steps.map((x, i) => row(x, from[i] ? length - 1 - time : time));
    const made = body.run([...state, ...current], find);
    state = made.slice(0, state.length);
    made.slice(state.length).forEach((x, i) => (put[i][to[i] ? length - 1 - time : time] = x));
  }
  return [...state, ...put.map(stack)];
};

function row(x, at) {
  const dims = x.dims.slice(1);
  const size = count(dims);
  return tensor(x.data.subarray(at * size, (at + 1) * size), dims);
}

function stack(all) {
  const size = all[0].data.length;
  const data = new all[0].data.constructor(all.length * size);
  all.forEach((x, i) => data.set(x.data, i * size));
  return tensor(data, [all.length, ...all[0].dims]);
}
