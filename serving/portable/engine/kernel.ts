// Products of rows by 128-bit vectors, in AssemblyScript. `make page-kernel` writes kernel.js of it.
// y (n, m) = x (n, k) by w (m, k): k is a multiple of eight, m of four.

@inline
function sum(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3);
}

@inline
function total(v: v128): i32 {
  return i32x4.extract_lane(v, 0) + i32x4.extract_lane(v, 1) + i32x4.extract_lane(v, 2) + i32x4.extract_lane(v, 3);
}

// x, w and y are float32.
export function floats(x: usize, n: usize, k: usize, w: usize, m: usize, y: usize): void {
  const row = k << 2;
  for (let column: usize = 0; column < m; column += 4) {
    const w0 = w + column * row, w1 = w0 + row, w2 = w1 + row, w3 = w2 + row;
    for (let r: usize = 0; r < n; r++) { // the four columns' weights stay near
      const from = x + r * row;
      let s0 = f32x4.splat(0), s1 = s0, s2 = s0, s3 = s0;
      for (let i: usize = 0; i < row; i += 16) {
        const v = v128.load(from + i);
        s0 = f32x4.add(s0, f32x4.mul(v, v128.load(w0 + i)));
        s1 = f32x4.add(s1, f32x4.mul(v, v128.load(w1 + i)));
        s2 = f32x4.add(s2, f32x4.mul(v, v128.load(w2 + i)));
        s3 = f32x4.add(s3, f32x4.mul(v, v128.load(w3 + i)));
      }
      const to = y + ((r * m + column) << 2);
      store<f32>(to, sum(s0));
      store<f32>(to, sum(s1), 4);
      store<f32>(to, sum(s2), 8);
      store<f32>(to, sum(s3), 12);
    }
  }
}

// x is int16, within -128 and 127; w is int8, y int32.
export function bytes(x: usize, n: usize, k: usize, w: usize, m: usize, y: usize): void {
  const row = k;
  for (let column: usize = 0; column < m; column += 4) {
    const w0 = w + column * row, w1 = w0 + row, w2 = w1 + row, w3 = w2 + row;
    for (let r: usize = 0; r < n; r++) {
      const from = x + ((r * row) << 1);
      let s0 = i32x4.splat(0), s1 = s0, s2 = s0, s3 = s0;
      for (let i: usize = 0; i < row; i += 8) {
        const v = v128.load(from + (i << 1));
        s0 = i32x4.add(s0, i32x4.dot_i16x8_s(v, v128.load8x8_s(w0 + i)));
        s1 = i32x4.add(s1, i32x4.dot_i16x8_s(v, v128.load8x8_s(w1 + i)));
        s2 = i32x4.add(s2, i32x4.dot_i16x8_s(v, v128.load8x8_s(w2 + i)));
        s3 = i32x4.add(s3, i32x4.dot_i16x8_s(v, v128.load8x8_s(w3 + i)));
      }
      const to = y + ((r * m + column) << 2);
      store<i32>(to, total(s0));
      store<i32>(to, total(s1), 4);
      store<i32>(to, total(s2), 8);
      store<i32>(to, total(s3), 12);
    }
  }
}
