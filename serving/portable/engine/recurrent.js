// ONNX's recurrent layers: inputs (S, B, dim), gates along the first axis of kernels.

import { tensor } from "./tensors.js";

const sigmoid = (v) => 1 / (1 + Math.exp(-v));

// A layer of one direction or of two. `step(of_inputs, of_state, units, state, cell)` changes the
// states of a row; its first two arguments hold the gates.
const layer = (step, states) => ([x, W, R, B, lengths], _, products) => {
  const [time, batch, dim] = x.dims;
  const [directions, gates, units] = R.dims;
  const y = new Float32Array(time * directions * batch * units);
  const last = Array.from({ length: states }, () => new Float32Array(directions * batch * units));
  for (let way = 0; way < directions; way++) {
    const kernel = placed(W, way, gates, dim, products);
    const recurrent = placed(R, way, gates, units, products);
    const ofInputs = products.times(x.data, time * batch, kernel);
    const bias = B.data.subarray(way * 2 * gates, (way + 1) * 2 * gates);
    for (let row = 0; row < batch; row++) {
      const state = last.map((all) => all.subarray((way * batch + row) * units, (way * batch + row + 1) * units));
      for (let i = 0; i < lengths.data[row]; i++) {
        const t = way ? lengths.data[row] - 1 - i : i;
        const first = ofInputs.subarray((t * batch + row) * gates, (t * batch + row + 1) * gates);
        const second = products.times(state[0], 1, recurrent);
        for (let gate = 0; gate < gates; gate++) {
          first[gate] += bias[gate];
          second[gate] += bias[gates + gate];
        }
        step(first, second, units, ...state);
        y.set(state[0], ((t * directions + way) * batch + row) * units);
      }
    }
  }
  return [tensor(y, [time, directions, batch, units]), ...last.map((data) => tensor(data, [directions, batch, units]))];
};

// Return a direction's kernel, which is laid out at its first use.
function placed(weights, way, gates, dim, products) {
  weights.ways ??= [];
  return weights.ways[way] ??= products.place(weights.data.subarray(way * gates * dim, (way + 1) * gates * dim), dim, gates);
}

export const RNN = layer((x, h, units, state) => {
  for (let i = 0; i < units; i++) state[i] = Math.tanh(x[i] + h[i]);
}, 1);

// Gates z, r, candidate; the reset gate multiplies after the product (linear_before_reset).
export const GRU = layer((x, h, units, state) => {
  for (let i = 0; i < units; i++) {
    const z = sigmoid(x[i] + h[i]);
    const r = sigmoid(x[units + i] + h[units + i]);
    const made = Math.tanh(x[2 * units + i] + r * h[2 * units + i]);
    state[i] = made + z * (state[i] - made);
  }
}, 1);

// Gates i, o, f, candidate.
export const LSTM = layer((x, h, units, state, cell) => {
  const gate = (number, i) => x[number * units + i] + h[number * units + i];
  for (let i = 0; i < units; i++) {
    cell[i] = sigmoid(gate(2, i)) * cell[i] + sigmoid(gate(0, i)) * Math.tanh(gate(3, i));
    state[i] = sigmoid(gate(1, i)) * Math.tanh(cell[i]);
  }
}, 2);
