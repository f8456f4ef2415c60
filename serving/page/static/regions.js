// Shows the attention of a reader: weights over the image, and an outline that moves from the region
// of a character to the region of the next character.

const SPREAD = 1.2; // distance of the outline from the mean, in standard deviations
const $ = (id) => document.getElementById(id);

// Show weights of shape (rows, columns), the largest brightest. Without weights, show nothing.
export function light(weights) {
  const canvas = $("regions");
  const [rows, columns] = [weights?.length ?? 1, weights?.[0].length ?? 1];
  Object.assign(canvas, { width: columns, height: rows });
  delete canvas.dataset.region;
  if (!weights) return;
  const flat = weights.flat();
  const most = Math.max(...flat);
  const pen = canvas.getContext("2d");
  const colour = getComputedStyle(canvas).getPropertyValue("--token-lit");
  flat.forEach((weight, place) => {
    pen.fillStyle = `rgba(${colour}, ${(0.45 * weight / most).toFixed(3)})`;
    pen.fillRect(place % columns, Math.floor(place / columns), 1, 1);
  });
  const place = flat.indexOf(most);
  canvas.dataset.region = `${Math.floor(place / columns)},${place % columns}`;
}

// Draw the outline around most of the weight. Without weights, draw nothing.
export function outline(weights) {
  $("outline").classList.toggle("there", Boolean(weights));
  if (!weights) return;
  const total = (numbers) => numbers.reduce((a, b) => a + b);
  const [top, height] = extent(weights.map(total));
  const [left, width] = extent(weights[0].map((_, n) => total(weights.map((row) => row[n]))));
  Object.assign($("outline").style, { top, height, left, width });
}

// Return where most of the weight is along an axis: start and size, in percent of the axis.
function extent(sums) {
  const total = sums.reduce((a, b) => a + b);
  const mean = sums.reduce((a, weight, n) => a + weight * (n + 0.5), 0) / total;
  const variance = sums.reduce((a, weight, n) => a + weight * (n + 0.5 - mean) ** 2, 0) / total;
  const half = Math.max(0.5, SPREAD * Math.sqrt(variance));
  const [from, to] = [Math.max(0, mean - half), Math.min(sums.length, mean + half)];
  return [from, to - from].map((part) => `${(100 * part / sums.length).toFixed(2)}%`);
}
