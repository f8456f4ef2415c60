// Whether an image file is complete, as in `serving.portable.read.pixels`; a browser would also show
// an incomplete file.

const PASSES = [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]];
const CHANNELS = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 }; // by PNG's colour type
const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

// Return whether the bytes of a PNG or JPEG file are whole; of any other they are not.
export async function isWhole(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (bytes.length < 4) return false;
  return view.getUint32(0) === 0x89504e47 ? isWholePng(bytes, view) : bytes[0] === 0xff && bytes[1] === 0xd8 && isWholeJpeg(bytes);
}

async function isWholePng(bytes, view) {
  const packed = [];
  let kind = "";
  for (let place = 8; kind !== "IEND";) {
    if (place + 12 > bytes.length) return false;
    const end = place + 8 + view.getUint32(place);
    if (end + 4 > bytes.length || checksum(bytes.subarray(place + 4, end)) !== view.getUint32(end)) return false;
    kind = String.fromCharCode(...bytes.subarray(place + 4, place + 8));
    if (bytes[place + 4] < 97 && !["IHDR", "PLTE", "IDAT", "IEND"].includes(kind)) return false;
    if (kind === "IDAT") packed.push(bytes.subarray(place + 8, end));
    place = end + 4;
  }
  const [width, height, depth, color, interlaced] = [view.getUint32(16), view.getUint32(20), bytes[24], bytes[25], bytes[28]];
  const expected = (interlaced ? PASSES : [[0, 0, 1, 1]]).reduce((sum, [x, y, across, down]) => {
    const [columns, rows] = [Math.ceil((width - x) / across), Math.ceil((height - y) / down)];
    return sum + (columns > 0 && rows > 0 ? rows * (1 + Math.ceil(columns * depth * CHANNELS[color] / 8)) : 0);
  }, 0);
  let size = 0;
  try { // a stream's end has a checksum, too
    for await (const part of new Blob(packed).stream().pipeThrough(new DecompressionStream("deflate"))) {
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

// Segments must follow one another up to the end; within a scan, FF 00 is a data byte.
function isWholeJpeg(bytes) {
  let [place, kind] = [2, 0];
  while (kind !== 0xd9) {
    let mark = place;
    const isMark = (n) => bytes[n] === 0xff && bytes[n + 1] > 0 && bytes[n + 1] < 255 && (bytes[n + 1] < 0xd0 || bytes[n + 1] > 0xd7);
    while (mark + 1 < bytes.length && !isMark(mark)) {
      if (bytes[mark] !== 0xff && kind !== 0xda) return false;
      mark++;
    }
    kind = bytes[mark + 1] ?? 0;
    const size = (bytes[mark + 2] << 8) + bytes[mark + 3];
    const known = (kind >= 0xc0 && kind < 0xf0) || kind === 0xfe;
    if (!known || !(size > 1 || kind === 0xd9)) return false;
    place = mark + 2 + size;
  }
  return true;
}
