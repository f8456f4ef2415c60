// Files in base64, and as gzip.

export const decoded = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// Return a file's bytes. Hosts that say "content-encoding: gzip" have unpacked it.
export function unpacked(file) {
  const stream = new Blob([file]).stream();
  const gzip = file[0] === 0x1f && file[1] === 0x8b;
  return new Response(gzip ? stream.pipeThrough(new DecompressionStream("gzip")) : stream).arrayBuffer();
}
