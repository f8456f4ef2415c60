// Products of rows with constant kernels: by the WebAssembly kernel, or by plain loops where the
// browser has no vectors. Rows are float32, or uint8 around 128 with kernels in int8.

import { KERNEL } from "./kernel.js";

const PAGE = 1 << 16; // bytes by which WebAssembly's memory grows
const ROOM = 1 << 21; // bytes for the rows that go in, and as many for those that come out
const ZERO = 128; // of rows in eight bits
const up = (number, multiple) => Math.ceil(number / multiple) * multiple;

// Return an object with `place` and `times`.
export function makeProducts(vectors = true) {
  try {
    if (vectors) return new Vectors();
  } catch {
    // No WebAssembly, or none with vectors.
  }
  return new Loops();
}

// Write rows of `k` numbers, each at a multiple of `width`.
function lay(target, data, k, width) {
  for (let row = 0; row * k < data.length; row++) target.set(data.subarray(row * k, (row + 1) * k), row * width);
}

class Vectors {
  constructor() {
    const code = Uint8Array.from(atob(KERNEL), (letter) => letter.charCodeAt(0));
    this.kernel = new WebAssembly.Instance(new WebAssembly.Module(code)).exports;
    this.from = this.reserve(ROOM);
    this.to = this.reserve(ROOM);
  }

  reserve(bytes) {
    const { memory } = this.kernel;
    this.end ??= memory.buffer.byteLength;
    const at = this.end;
    this.end = up(at + bytes, 16);
    if (this.end > memory.buffer.byteLength) memory.grow(Math.ceil((this.end - memory.buffer.byteLength) / PAGE));
    return at;
  }

  // Store a kernel (k, m); return its handle for `times`. `data` is a Float32Array or Int8Array of its
  // columns; zeros at the end may be left out.
  place(data, k, m) {
    const [width, columns] = [up(k, 8), up(m, 4)];
    const at = this.reserve(width * columns * data.BYTES_PER_ELEMENT);
    lay(new data.constructor(this.kernel.memory.buffer, at, width * columns), data, k, width);
    return { at, k, m, width, columns, whole: data instanceof Int8Array };
  }

  // Return the products (n, m) of rows (n, k): Float32Array, or of eight bits Int32Array unless given.
  times(x, n, { at, k, m, width, columns, whole }, Type = whole ? Int32Array : Float32Array) {
    const { buffer } = this.kernel.memory;
    const y = new Type(n * m);
    const most = Math.floor(ROOM / (4 * Math.max(width, columns)));
    const into = whole ? new Int16Array(buffer, this.from, ROOM / 2) : new Float32Array(buffer, this.from, ROOM / 4);
    const out = new (whole ? Int32Array : Float32Array)(buffer, this.to, ROOM / 4);
    for (let first = 0; first < n; first += most) {
      const rows = Math.min(most, n - first);
      for (let r = 0; r < rows; r++) {
        const [start, end] = [r * width, (first + r) * k];
        if (whole) for (let i = 0; i < k; i++) into[start + i] = x[end + i] - ZERO;
        else into.set(x.subarray(end, end + k), start);
        into.fill(0, start + k, start + width);
      }
      this.kernel[whole ? "bytes" : "floats"](this.from, rows, width, at, columns, this.to);
      for (let r = 0; r < rows; r++) y.set(out.subarray(r * columns, r * columns + m), (first + r) * m);
    }
    return y;
  }
}

class Loops {
  place(data, k, m) {
    const kernel = new data.constructor(k * m);
    kernel.set(data);
    return { kernel, k, m, whole: data instanceof Int8Array };
  }

  times(x, n, { kernel, k, m, whole }, Type = whole ? Int32Array : Float32Array) {
    const y = new Type(n * m);
    const zero = whole ? ZERO : 0;
    for (let r = 0; r < n; r++) {
      for (let column = 0; column < m; column++) {
        let sum = 0;
        for (let i = 0, a = r * k, b = column * k; i < k; i++) sum += (x[a + i] - zero) * kernel[b + i];
        y[r * m + column] = sum;
      }
    }
    return y;
  }
}
