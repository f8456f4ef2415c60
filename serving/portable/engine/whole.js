// Whether an image file can be read, as in `serving.portable.read._pixels`; a browser would also show
// an incomplete file, and one in CMYK.

import { MOST_PIXELS } from "./rules.js";

const PASSES = [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]];
const DEEP = "has 16 bits a channel: expected 8 bits where there is no server"; // a canvas has the upper eight
// By PNG's colour type: channels, and bits of a channel.
const CHANNELS = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
const DEPTHS = { 0: [1, 2, 4, 8, 16], 2: [8, 16], 3: [1, 2, 4, 8], 4: [8, 16], 6: [8, 16] };
const FILTERS = 5; // of a row of a PNG
const TAIL = 1024; // an unsound file without its end mark in so many last bytes is cut off
const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});
const CMYK = 4; // colours of a JPEG

// Return why the bytes of a file cannot be read; "" if they can.
export async function refusal(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const isPng = bytes.length >= 8 && view.getUint32(0) === 0x89504e47 && view.getUint32(4) === 0x0d0a1a0a;
  if (isPng) {
    if (bytes.length < 26) return "cannot be decoded";
    const [width, height] = [view.getUint32(16), view.getUint32(20)];
    const reason = tooLarge(width, height) || (bytes[24] === 16 && DEEP);
    return reason || (await isWholePng(bytes, view) ? "" : unsound(bytes, "IEND"));
  }
  if (bytes.length < 3 || bytes[0] !== 0xff || bytes[1] !== 0xd8 || bytes[2] !== 0xff) return "is neither PNG nor JPEG";
  const frame = frameOf(bytes);
  if (!frame) return unsound(bytes, "\xff\xd9");
  return tooLarge(frame.width, frame.height) || (frame.colors === CMYK ? "is a JPEG in CMYK: convert it to RGB" : "");
}

function tooLarge(width, height) {
  const fits = width * height > 0 && width * height <= MOST_PIXELS;
  return fits ? "" : `has ${width} x ${height} pixels: expected at least 1 and at most ${MOST_PIXELS.toLocaleString("en")}`;
}

const isPalette = (size) => size > 0 && size <= 768 && size % 3 === 0;

function unsound(bytes, endMark) {
  const tail = String.fromCharCode(...bytes.subarray(-TAIL));
  return tail.includes(endMark) ? "cannot be decoded" : "is cut off: its end is missing";
}

async function isWholePng(bytes, view) {
  const [width, height, depth, color, interlaced] = [view.getUint32(16), view.getUint32(20), bytes[24], bytes[25], bytes[28]];
  if (!DEPTHS[color]?.includes(depth) || bytes[26] || bytes[27] || interlaced > 1) return false;
  const [packed, found] = [new Uint8Array(bytes.length), new Set()];
  let [kind, filled] = ["", 0];
  for (let place = 8; kind !== "IEND";) {
    if (place + 12 > bytes.length) return false;
    const end = place + 8 + view.getUint32(place);
    if (end + 4 > bytes.length || checksum(bytes.subarray(place + 4, end)) !== view.getUint32(end)) return false;
    const before = kind;
    kind = String.fromCharCode(...bytes.subarray(place + 4, place + 8));
    if (bytes[place + 4] < 97 && !["IHDR", "PLTE", "IDAT", "IEND"].includes(kind)) return false;
    if ((kind === "IHDR") !== (place === 8) || (kind === "PLTE" && found.has(kind))) return false;
    if (kind === "PLTE" && color === 3 && !isPalette(end - place - 8)) return false;
    if (kind === "IDAT") {
      if (before !== kind && found.has(kind)) return false;
      packed.set(bytes.subarray(place + 8, end), filled);
      filled += end - place - 8;
    }
    found.add(kind);
    place = end + 4;
  }
  const passes = (interlaced ? PASSES : [[0, 0, 1, 1]]).map(([x, y, across, down]) => {
    const [columns, rows] = [Math.ceil((width - x) / across), Math.ceil((height - y) / down)];
    return { rows: columns > 0 ? rows : 0, bytes: 1 + Math.ceil(columns * depth * CHANNELS[color] / 8) };
  }).filter(({ rows }) => rows > 0);
  const expected = passes.reduce((sum, { rows, bytes: own }) => sum + rows * own, 0);
  let [size, next, row] = [0, 0, 0]; // `next` is where the next row begins, with its filter
  try { // a stream's end has a checksum, too
    for await (const part of new Blob([packed.subarray(0, filled)]).stream().pipeThrough(new DecompressionStream("deflate"))) {
      while (next < size + part.length && passes.length) {
        if (part[next - size] >= FILTERS) return false;
        next += passes[0].bytes;
        if (++row === passes[0].rows) [row] = [0, passes.shift()];
      }
      size += part.length;
      if (size > expected) return true;
    }
  } catch {
    return false;
  }
  return size === expected;
}

function checksum(bytes) {
  let state = -1;
  for (const byte of bytes) state = TABLE[(state ^ byte) & 255] ^ (state >>> 8);
  return ~state >>> 0;
}

// Return {width, height, colors} of a JPEG file, null if it is not whole. Segments must follow one another
// up to the end; within a scan, FF 00 is a data byte.
function frameOf(bytes) {
  let [place, kind, frame] = [2, 0, null];
  while (kind !== 0xd9) {
    let mark = place;
    const isMark = (n) => bytes[n] === 0xff && bytes[n + 1] > 0 && bytes[n + 1] < 255 && (bytes[n + 1] < 0xd0 || bytes[n + 1] > 0xd7);
    while (mark + 1 < bytes.length && !isMark(mark)) {
      if (bytes[mark] !== 0xff && kind !== 0xda) return null;
      mark++;
    }
    kind = bytes[mark + 1] ?? 0;
    const size = (bytes[mark + 2] << 8) + bytes[mark + 3];
    const known = (kind >= 0xc0 && kind < 0xf0) || kind === 0xfe;
    if (!known || !(size > 1 || kind === 0xd9)) return null;
    if (kind >= 0xc0 && kind < 0xd0 && ![0xc4, 0xc8, 0xcc].includes(kind)) {
      const [height, width] = [5, 7].map((n) => (bytes[mark + n] << 8) + bytes[mark + n + 1]);
      frame ??= { width, height, colors: bytes[mark + 9] };
    }
    place = mark + 2 + size;
  }
  return frame;
}
