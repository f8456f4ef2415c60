// Images as a model's pixels: `serving.portable.read._pixels`, by the browser's decoder.

import { refusal } from "./whole.js";

const LUMA = [9797, 19234, 3737]; // red, green and blue of ITU-R 601, of 32768
const f = Math.fround;

// Return an image file as uint8 (height, width, channels), turned as its EXIF orientation says.
export async function readImage(blob, { height, width, channels }) {
  const reason = await refusal(new Uint8Array(await blob.arrayBuffer()));
  if (reason) throw new Error(`image 1 ${reason}`);
  const settings = { colorSpaceConversion: "none", premultiplyAlpha: "none", imageOrientation: "from-image" };
  const image = await createImageBitmap(blob, settings).catch(() => {
    throw new Error("image 1 cannot be decoded: expected a PNG or JPEG file");
  });
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const { data } = pen.getImageData(0, 0, image.width, image.height);
  return resize(onWhite(data, channels), [image.height, image.width, channels], height, width);
}

// Return RGBA pixels as RGB or gray, composited on white.
export function onWhite(data, channels) {
  const pixels = new Float32Array((data.length / 4) * channels);
  for (let from = 0, to = 0; from < data.length; from += 4) {
    const alpha = data[from + 3];
    const colors = [0, 1, 2].map((n) => Math.floor((data[from + n] * alpha + 255 * (255 - alpha) + 127) / 255));
    if (channels === 1) pixels[to++] = (colors[0] * LUMA[0] + colors[1] * LUMA[1] + colors[2] * LUMA[2]) >> 15;
    else for (const color of colors) pixels[to++] = color;
  }
  return pixels;
}

// Resize (h, w, C), bilinearly and with antialiasing, in TensorFlow's order of float32 sums.
export function resize(pixels, [h, w, channels], height, width) {
  const rows = weighed(pixels, h, w * channels, height);
  const turned = weighed(turn(rows, height, w, channels), w, height * channels, width);
  return Uint8Array.from(turn(turned, width, height, channels), (v) => Math.max(0, Math.min(255, even(v))));
}

const even = (v) => v + 6755399441055744 - 6755399441055744; // to the nearest, halves to even

// Return `x` (a, b, C) transposed to (b, a, C).
function turn(x, a, b, channels) {
  const y = new Float32Array(x.length);
  for (let i = 0; i < a; i++) for (let j = 0; j < b; j++) for (let c = 0; c < channels; c++) {
    y[(j * a + i) * channels + c] = x[(i * b + j) * channels + c];
  }
  return y;
}

// Return `after` rows, each made of the old rows (before, size) near it.
function weighed(x, before, size, after) {
  const inverse = f(1 / f(after / before));
  const reach = Math.max(inverse, 1);
  const y = new Float32Array(after * size);
  for (let row = 0; row < after; row++) {
    const center = f(f(row + 0.5) * inverse);
    const first = Math.max(0, Math.min(before - 1, Math.ceil(f(f(center - reach) - 0.5))));
    const last = Math.max(0, Math.min(before - 1, Math.floor(f(f(center + reach) - 0.5))));
    const weights = Array.from({ length: last - first + 1 }, (_, i) => {
      const away = Math.abs(f(f(f(first + i + 0.5) - center) * f(1 / reach)));
      return Math.max(0, f(1 - away));
    });
    const total = f(1 / weights.reduce((sum, weight) => f(sum + weight), 0));
    weights.forEach((weight, i) => {
      const share = f(weight * total);
      for (let at = 0; at < size; at++) y[row * size + at] += f(x[(first + i) * size + at] * share);
    });
  }
  return y;
}
