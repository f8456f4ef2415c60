// The ONNX operators that exports use. Each takes its inputs, its attributes and the object of
// `makeProducts`, and returns a tensor or a list of tensors.

import { GRU, LSTM, RNN } from "./recurrent.js";
import { ARRAYS, around, common, count, place, spread, tensor, transpose } from "./tensors.js";

const EVEN = 6755399441055744; // adding and subtracting it rounds to the nearest integer, halves to even
const ZERO = 128; // of activations in eight bits

// Loops are written out for each operator: engines compile a function that is shared once for all.
const each = (loop) => ([x]) => {
  const data = new x.data.constructor(x.data.length);
  loop(x.data, data);
  return tensor(data, x.dims);
};

// An operator of two tensors, with broadcasting.
const both = (loop, Type) => ([a, b]) => {
  const dims = common(a.dims, b.dims);
  const size = count(dims);
  const [x, y] = [period(a, dims), period(b, dims)];
  const data = new (Type ?? x.constructor)(size);
  const step = Math.min(x.length, y.length);
  for (let start = 0; start < size; start += step) {
    loop(x, x.length === size ? start : 0, y, y.length === size ? start : 0, data, start, start + step);
  }
  return tensor(data, dims);
};
const compare = (loop) => both(loop, Uint8Array);
const all = (operator) => (inputs) => inputs.reduce((a, b) => operator([a, b]));

const add = both((x, i, y, j, to, at, end) => { while (at < end) to[at++] = x[i++] + y[j++]; });
const greater = both((x, i, y, j, to, at, end) => { while (at < end) to[at++] = Math.max(x[i++], y[j++]); });

// Return the numbers whose repetition is the tensor broadcast to these dims.
function period(x, dims) {
  const first = x.dims.findIndex((size) => size !== 1);
  const own = first < 0 ? [] : x.dims.slice(first);
  return own.every((size, axis) => size === dims[dims.length - own.length + axis]) ? x.data : spread(x, dims).data;
}

const reduce = (start, f, last = (sum) => sum) => ([x, axes], { keepdims = 1 }) => {
  const at = place(axes.data[0], x.dims.length);
  const [before, size, after] = around(x.dims, at);
  const data = new x.data.constructor(before * after);
  for (let b = 0; b < before; b++) {
    for (let a = 0; a < after; a++) {
      let sum = start;
      for (let i = 0, from = b * size * after + a; i < size; i++, from += after) sum = f(sum, x.data[from]);
      data[b * after + a] = last(sum, size);
    }
  }
  return tensor(data, [...x.dims.slice(0, at), ...(keepdims ? [1] : []), ...x.dims.slice(at + 1)]);
};

function mean(inputs) {
  const sum = all(add)(inputs);
  return tensor(sum.data.map((v) => v / inputs.length), sum.dims);
}

function logSumExp([x, axes], attributes) {
  const most = greatest(x.data);
  const moved = tensor(Float64Array.from(x.data, (v) => Math.exp(v - most)), x.dims);
  const sum = reduce(0, (total, v) => total + v, Math.log)([moved, axes], attributes);
  return tensor(Float32Array.from(sum.data, (v) => v + most), sum.dims);
}

// Rows of the last axis: `f` reads one and writes another.
const rows = (f) => ([x]) => {
  const size = x.dims.at(-1);
  const data = new x.data.constructor(x.data.length);
  for (let start = 0; start < data.length; start += size) f(x.data.subarray(start, start + size), data.subarray(start, start + size));
  return tensor(data, x.dims);
};

function greatest(row) {
  let most = -Infinity;
  for (let i = 0; i < row.length; i++) if (row[i] > most) most = row[i];
  return most;
}

function softmax(row, to) {
  const most = greatest(row);
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += to[i] = Math.exp(row[i] - most);
  for (let i = 0; i < row.length; i++) to[i] /= sum;
}

function logSoftmax(row, to) {
  const most = greatest(row);
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += Math.exp(row[i] - most);
  const log = Math.log(sum);
  for (let i = 0; i < row.length; i++) to[i] = row[i] - most - log;
}

function sums(row, to) {
  row.reduce((sum, v, i) => (to[i] = sum + v), 0);
}

// Change a product (…, m) in place, by one number for each row or for each column.
const within = (loop) => (y, m, { data, dims }) => {
  const last = dims.at(-1) ?? 1;
  const [next, step] = [data.length > last ? 1 : 0, last > 1 ? 1 : 0];
  for (let at = 0, from = 0; at < y.length; at += m, from += next) loop(y, at, at + m, data, from, step);
};
const WITHIN = {
  Add: within((y, at, end, x, i, step) => { for (; at < end; at++, i += step) y[at] += x[i]; }),
  Mul: within((y, at, end, x, i, step) => { for (; at < end; at++, i += step) y[at] *= x[i]; }),
};

// Return a matrix product. `products` multiplies by a kernel, and the operators in `then` change the
// result in place (see `serving.portable.engine._graphs`). Other matrices are multiplied row by row.
function matMul([a, b, ...more], { then = [] }, products) {
  if (b.kernel) {
    const [lead, m, cast] = [a.dims.slice(0, -1), b.dims[1], then[0] === "Cast"];
    const data = products.times(a.data, count(lead), b.kernel, cast ? Float32Array : undefined);
    then.slice(cast ? 1 : 0).forEach((op, i) => WITHIN[op](data, m, more[i]));
    return tensor(data, [...lead, m]);
  }
  const [n, k, m] = [a.dims.at(-2), a.dims.at(-1), b.dims.at(-1)];
  const lead = common(a.dims.slice(0, -2), b.dims.slice(0, -2));
  const [x, y] = [spread(a, [...lead, n, k]).data, spread(b, [...lead, k, m]).data];
  const data = new Float32Array(count(lead) * n * m);
  for (let row = 0, to = 0; to < data.length; row++, to += m) {
    const matrix = Math.floor(row / n) * k * m;
    const sum = new Float64Array(m);
    for (let i = 0; i < k; i++) {
      const v = x[row * k + i];
      if (v !== 0) for (let j = 0, at = matrix + i * m; j < m; j++) sum[j] += v * y[at + j];
    }
    data.set(sum, to);
  }
  return tensor(data, [...lead, n, m]);
}

function quantize([x, { data: [scale] }]) {
  const data = new Uint8Array(x.data.length);
  for (let i = 0; i < data.length; i++) {
    data[i] = Math.max(0, Math.min(255, Math.fround(x.data[i] / scale) + EVEN - EVEN + ZERO));
  }
  return tensor(data, x.dims);
}

function concat(inputs, { axis }) {
  const at = place(axis, inputs[0].dims.length);
  const dims = inputs[0].dims.slice();
  dims[at] = inputs.reduce((sum, x) => sum + x.dims[at], 0);
  const data = new inputs[0].data.constructor(count(dims));
  const [before, size, after] = around(dims, at);
  let start = 0;
  for (const x of inputs) {
    const part = x.dims[at] * after;
    for (let b = 0; b < before; b++) data.set(x.data.subarray(b * part, (b + 1) * part), b * size * after + start);
    start += part;
  }
  return tensor(data, dims);
}

function cut(x, axis, start, end) {
  const at = place(axis, x.dims.length);
  const [before, size, after] = around(x.dims, at);
  const dims = x.dims.slice();
  dims[at] = end - start;
  const data = new x.data.constructor(count(dims));
  for (let b = 0; b < before; b++) {
    data.set(x.data.subarray((b * size + start) * after, (b * size + end) * after), b * (end - start) * after);
  }
  return tensor(data, dims);
}

function slice([x, starts, ends, axes]) {
  const size = x.dims[place(axes.data[0], x.dims.length)];
  const [start, end] = [starts, ends].map(({ data: [v] }) => Math.max(0, Math.min(size, v < 0 ? v + size : v)));
  return cut(x, axes.data[0], start, Math.max(start, end));
}

function split([x, sizes], { axis = 0, num_outputs: parts }) {
  const size = x.dims[place(axis, x.dims.length)];
  let start = 0;
  return Array.from(sizes?.data ?? new Array(parts).fill(size / parts), (part) => cut(x, axis, start, start += part));
}

function gather([x, indices], { axis = 0 }) {
  const at = place(axis, x.dims.length);
  const [before, size, after] = around(x.dims, at);
  const data = new x.data.constructor(before * indices.data.length * after);
  let to = 0;
  for (let b = 0; b < before; b++) {
    for (const index of indices.data) {
      const from = (b * size + (index < 0 ? index + size : index)) * after;
      data.set(x.data.subarray(from, from + after), to);
      to += after;
    }
  }
  return tensor(data, [...x.dims.slice(0, at), ...indices.dims, ...x.dims.slice(at + 1)]);
}

function shape([x], { start = 0, end }) {
  const data = Int32Array.from(x.dims.slice(start, end));
  return tensor(data, [data.length]);
}

function reshape([x, sizes]) {
  const dims = Array.from(sizes.data, (size, axis) => (size === 0 ? x.dims[axis] : size));
  const left = dims.indexOf(-1);
  if (left >= 0) dims[left] = x.data.length / -count(dims);
  return tensor(x.data, dims);
}

function unsqueeze([x, { data: [axis] }]) {
  const dims = x.dims.slice();
  dims.splice(place(axis, dims.length + 1), 0, 1);
  return tensor(x.data, dims);
}

function squeeze([x, axes]) {
  const at = axes && place(axes.data[0], x.dims.length);
  return tensor(x.data, x.dims.filter((size, axis) => (axes ? axis !== at : size !== 1)));
}

function where([condition, a, b]) {
  const dims = common(condition.dims, a.dims, b.dims);
  const [{ data: ask }, { data: x }, { data: y }] = [condition, a, b].map((each) => spread(each, dims));
  return tensor(x.map((v, i) => (ask[i] ? v : y[i])), dims);
}

function range([{ data: [start] }, { data: [end] }, { data: [step] }]) {
  const length = Math.max(0, Math.ceil((end - start) / step));
  return tensor(Int32Array.from({ length }, (_, i) => start + i * step), [length]);
}

// Return the k greatest values of the last axis and their indices; equal values keep their order.
function topK([x, { data: [k] }]) {
  const size = x.dims.at(-1);
  const lead = x.dims.slice(0, -1);
  const [values, places] = [new x.data.constructor(count(lead) * k), new Int32Array(count(lead) * k)];
  for (let row = 0; row < count(lead); row++) {
    const own = x.data.subarray(row * size, (row + 1) * size);
    const order = Array.from(own.keys()).sort((i, j) => own[j] - own[i] || i - j).slice(0, k);
    places.set(order, row * k);
    values.set(order.map((i) => own[i]), row * k);
  }
  return [tensor(values, [...lead, k]), tensor(places, [...lead, k])];
}

// Zeros before and after the last axis.
function pad([x, pads]) {
  const rank = x.dims.length;
  const [before, after] = [pads.data[rank - 1], pads.data[2 * rank - 1]];
  const ends = [before, after].map((size) => {
    const dims = [...x.dims.slice(0, -1), size];
    return tensor(new x.data.constructor(count(dims)), dims);
  });
  return concat([ends[0], x, ends[1]], { axis: -1 });
}

// Return the convolution (N, F, [H,] W) of x (N, C, [H,] W) with filters (F, C, [h,] w): a product of
// the filters and the patch around each place.
function conv([x, filters, bias], { pads }, products) {
  const [n, channels, height, width] = flat(x.dims);
  const [f, , h, w] = flat(filters.dims);
  const [top, left] = pads.length > 2 ? pads : [0, pads[0]];
  filters.kernel ??= products.place(filters.data, channels * h * w, f);
  const places = height * width;
  const data = new Float32Array(n * f * places);
  for (let row = 0; row < n; row++) {
    const seen = new Float32Array(places * channels * h * w);
    let to = 0;
    for (let y = 0; y < height; y++) for (let z = 0; z < width; z++) for (let c = 0; c < channels; c++) {
      for (let i = y - top; i < y - top + h; i++) for (let j = z - left; j < z - left + w; j++, to++) {
        if (i >= 0 && i < height && j >= 0 && j < width) seen[to] = x.data[((row * channels + c) * height + i) * width + j];
      }
    }
    const made = products.times(seen, places, filters.kernel);
    for (let place = 0; place < places; place++) for (let filter = 0; filter < f; filter++) {
      data[(row * f + filter) * places + place] = made[place * f + filter] + (bias ? bias.data[filter] : 0);
    }
  }
  return tensor(data, [n, f, ...x.dims.slice(2)]);
}

const flat = (dims) => (dims.length > 3 ? dims : [dims[0], dims[1], 1, dims[2]]);

// Return the maximum of each block; an incomplete block at the end is left out.
function maxPool([x], { kernel_shape: [h, w] }) {
  const [n, channels, height, width] = x.dims;
  const dims = [n, channels, Math.floor(height / h), Math.floor(width / w)];
  const data = new Float32Array(count(dims)).fill(-Infinity);
  for (let to = 0; to < data.length; to++) {
    const [z, y] = [to % dims[3], Math.floor(to / dims[3]) % dims[2]];
    const image = Math.floor(to / (dims[2] * dims[3])) * height * width;
    for (let i = 0; i < h; i++) for (let j = 0; j < w; j++) {
      data[to] = Math.max(data[to], x.data[image + (y * h + i) * width + z * w + j]);
    }
  }
  return tensor(data, dims);
}

export const OPERATORS = {
  Abs: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = Math.abs(x[i]); }),
  Add: add,
  And: compare((x, i, y, j, to, at, end) => { while (at < end) to[at++] = x[i++] & y[j++]; }),
  Cast: ([x], { to }) => tensor(to === "bool" ? Uint8Array.from(x.data, Boolean) : new ARRAYS[to](x.data), x.dims),
  Concat: concat,
  Conv: conv,
  CumSum: rows(sums),
  Div: both((x, i, y, j, to, at, end) => { while (at < end) to[at++] = x[i++] / y[j++]; }),
  Equal: compare((x, i, y, j, to, at, end) => { while (at < end) to[at++] = x[i++] === y[j++]; }),
  Exp: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = Math.exp(x[i]); }),
  Expand: ([x, sizes]) => spread(x, common(x.dims, Array.from(sizes.data))),
  GRU,
  Gather: gather,
  Greater: compare((x, i, y, j, to, at, end) => { while (at < end) to[at++] = x[i++] > y[j++]; }),
  GreaterOrEqual: compare((x, i, y, j, to, at, end) => { while (at < end) to[at++] = x[i++] >= y[j++]; }),
  Identity: ([x]) => x,
  LSTM,
  Log: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = Math.log(x[i]); }),
  LogSoftmax: rows(logSoftmax),
  MatMul: matMul,
  MatMulInteger: matMul,
  Max: all(greater),
  MaxPool: maxPool,
  Mean: mean,
  Mul: both((x, i, y, j, to, at, end) => { while (at < end) to[at++] = x[i++] * y[j++]; }),
  Neg: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = -x[i]; }),
  Not: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = 1 - x[i]; }),
  Pad: pad,
  QuantizeLinear: quantize,
  RNN,
  Range: range,
  ReduceLogSumExp: logSumExp,
  ReduceMax: reduce(-Infinity, Math.max),
  ReduceMean: reduce(0, (sum, v) => sum + v, (sum, size) => sum / size),
  ReduceSum: reduce(0, (sum, v) => sum + v),
  Relu: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = Math.max(0, x[i]); }),
  Reshape: reshape,
  Shape: shape,
  Sigmoid: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = 1 / (1 + Math.exp(-x[i])); }),
  Slice: slice,
  Softmax: rows(softmax),
  Softplus: each((x, to) => {
    for (let i = 0; i < to.length; i++) to[i] = Math.max(0, x[i]) + Math.log1p(Math.exp(-Math.abs(x[i])));
  }),
  Split: split,
  Sqrt: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = Math.sqrt(x[i]); }),
  Squeeze: squeeze,
  Sub: both((x, i, y, j, to, at, end) => { while (at < end) to[at++] = x[i++] - y[j++]; }),
  Sum: all(add),
  Tanh: each((x, to) => { for (let i = 0; i < to.length; i++) to[i] = Math.tanh(x[i]); }),
  TopK: topK,
  Transpose: ([x], { perm }) => transpose(x, perm),
  Unsqueeze: unsqueeze,
  Where: where,
};
