// Tensors are {dims, data}: numbers as typed arrays, booleans as 0 and 1 in a Uint8Array.

export const ARRAYS = {
  float32: Float32Array, int64: Int32Array, int32: Int32Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array,
};
export const tensor = (data, dims) => ({ data, dims });
export const count = (dims) => dims.reduce((product, size) => product * size, 1);
export const place = (axis, rank) => (axis < 0 ? axis + rank : axis);

// Return the products of the sizes before an axis, of the axis, and after it.
export function around(dims, axis) {
  const at = place(axis, dims.length);
  return [count(dims.slice(0, at)), dims[at], count(dims.slice(at + 1))];
}

// Return the strides of `dims` along each axis of `wanted`, 0 where `dims` has size 1.
function strides(dims, wanted) {
  const steps = new Array(wanted.length).fill(0);
  for (let axis = dims.length - 1, to = wanted.length - 1, step = 1; axis >= 0; axis--, to--) {
    if (dims[axis] > 1) steps[to] = step;
    step *= dims[axis];
  }
  return steps;
}

// Call `run(place, start)` for each row of `dims`: where it begins by these strides, and in order.
function eachRow(dims, steps, run) {
  const last = Math.max(0, dims.length - 1);
  const at = new Array(last).fill(0);
  const inner = dims.length ? dims[last] : 1;
  for (let place = 0, start = 0, end = count(dims); start < end; start += inner) {
    run(place, start);
    for (let axis = last - 1; axis >= 0; axis--) {
      place += steps[axis];
      if (++at[axis] < dims[axis]) break;
      place -= steps[axis] * dims[axis];
      at[axis] = 0;
    }
  }
}

// Return the dims that several tensors broadcast to.
export function common(...all) {
  const rank = Math.max(...all.map((dims) => dims.length));
  return Array.from({ length: rank }, (_, axis) => {
    const sizes = all.map((dims) => dims[axis - rank + dims.length] ?? 1);
    return sizes.find((size) => size !== 1) ?? 1;
  });
}

const same = (dims, others) => dims.length === others.length && dims.every((size, axis) => size === others[axis]);

// Broadcast a tensor to these dims.
export function spread(x, dims) {
  return same(x.dims, dims) ? x : byStrides(x, dims, strides(x.dims, dims));
}

export function transpose(x, order) {
  const own = strides(x.dims, x.dims);
  return byStrides(x, order.map((axis) => x.dims[axis]), order.map((axis) => own[axis]));
}

function byStrides(x, dims, steps) {
  const data = new x.data.constructor(count(dims));
  const [inner, step] = [dims.at(-1) ?? 1, steps.at(-1) ?? 0];
  eachRow(dims, steps, (place, start) => {
    for (let i = 0; i < inner; i++) data[start + i] = x.data[place + i * step];
  });
  return tensor(data, dims);
}
